#pragma once
// The packed weights of one model, in memory of this process or mapped from a file that all processes of the machine
// share.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/engine/cpu/packing.h"
#include "common/engine/mapped_file.h"
#include "common/model/gguf.h"

namespace millrace::engine::cpu {

struct PackedTensor {
  TensorShape shape;
  const std::byte* data = nullptr;  // 64-byte aligned
};

// Memory of page granularity. Move-only.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  // Zeroed. kResourceExhausted.
  static StatusOr<Memory> Allocate(uint64_t bytes);
  // Read-only view of an open file; the descriptor may be closed afterwards. Should the file at `path` shrink, the
  // process ends as common/engine/mapped_file.h says.
  static StatusOr<Memory> Map(int descriptor, uint64_t bytes, const std::string& path);

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  std::unique_ptr<MappedFileWatch> watch_;
};

// Where each tensor lies: name, shape, offset.
struct WeightIndex {
  struct Entry {
    std::string name;
    TensorShape shape;
    uint64_t offset = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> entries;
  uint64_t bytes = 0;  // of all tensors
  friend bool operator==(const WeightIndex&, const WeightIndex&) = default;
};

// Immutable; thread-safe.
class Weights {
 public:
  // `memory` holds the tensors from `offset` on.
  Weights(WeightIndex index, Memory memory, uint64_t offset);
  const PackedTensor* Find(std::string_view name) const;  // null when absent
  bool shared() const { return shared_; }
  void MarkShared() { shared_ = true; }

 private:
  Memory memory_;
  std::map<std::string, PackedTensor, std::less<>> tensors_;
  bool shared_ = false;
};

// Bytes packed so far and in all.
using PackProgress = std::function<void(uint64_t done, uint64_t total)>;

// The index of `names`, in order; all are in the file.
StatusOr<WeightIndex> IndexTensors(const model::GgufFile& file, std::span<const std::string> names);
// Reads and packs the tensors of `index` into `out`, index.bytes long and zeroed.
Status PackTensors(const model::GgufFile& file, const WeightIndex& index, std::byte* out, const PackProgress& progress);

struct WeightOptions {
  std::string model_digest;  // SHA-256 of the file, hex
  std::string cache_dir;     // empty: pack into private memory
  PackProgress progress;     // may be empty
};

// Maps the packed file "<cache_dir>/<digest>.v<kPackingVersion>.weights"; first packs it when it is absent, damaged or
// of another index. Falls back to private memory, with a warning, when the folder can't be written.
StatusOr<Weights> LoadWeights(const model::GgufFile& file, std::span<const std::string> names,
                              const WeightOptions& options);

}  // namespace millrace::engine::cpu
