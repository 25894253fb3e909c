#pragma once
// GGUF files (the format of ggml, version 2 and 3, little-endian): metadata and tensors of one file. Source:
// docs/gguf.md of the ggml project. Every offset, length and count is checked against the file before use: a corrupt or
// truncated file is an error that names what is wrong, never a crash. The file is read, not mapped, so that one which
// shrinks while it is in use is an error and not a SIGBUS.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/status.h"

namespace millrace::model {

// Values are those of ggml.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// nullptr-free description of a type we can read; kUnimplemented names the type beside the list of those we have.
struct TypeTraits {
  std::string_view name;    // "Q4_1"
  uint32_t block_elements;  // elements a block
  uint32_t block_bytes;
};
StatusOr<TypeTraits> TraitsOf(TensorType type);

// A matrix of `rows` rows of `cols` elements, row-major, quantised along the row; a vector has rows == 1.
struct Tensor {
  std::string name;
  TensorType type = TensorType::kF32;
  uint64_t cols = 0;    // ne[0], a multiple of the type's block
  uint64_t rows = 0;    // product of the other dimensions
  uint64_t offset = 0;  // from the start of the file; the whole tensor lies inside the file
  size_t row_bytes() const;
  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes(); }
};

// Expands one row (cols a multiple of the type's block) to floats, exactly as the format defines.
void DequantizeRow(TensorType type, const std::byte* row, uint64_t cols, float* out);

using MetadataScalar = std::variant<uint64_t, int64_t, double, bool, std::string>;
using MetadataValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<std::string>,
                                   std::vector<int64_t>, std::vector<double>, std::vector<bool>>;

// Immutable after Open; thread-safe.
class GgufFile {
 public:
  // Reads the header of `path` and keeps the file open. kNotFound, kInvalidArgument (what is wrong, where),
  // kUnimplemented (split files, types).
  static StatusOr<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  virtual ~GgufFile() = default;

  virtual const std::string& path() const = 0;
  virtual uint64_t file_bytes() const = 0;
  virtual const std::map<std::string, MetadataValue>& metadata() const = 0;
  virtual const std::vector<Tensor>& tensors() const = 0;
  virtual const Tensor* Find(std::string_view name) const = 0;  // null when absent

  // Reads rows [first_row, first_row + row_count) of a tensor of this file into `out`, exactly row_count * row_bytes()
  // long; blocks on the disk. kInvalidArgument for rows or a size that do not fit, kFailedPrecondition when the file
  // has become shorter, kDataLoss when the disk fails.
  virtual Status ReadRows(const Tensor& tensor, uint64_t first_row, uint64_t row_count,
                          std::span<std::byte> out) const = 0;

  // Typed look-ups: kNotFound names the key, kInvalidArgument the type found. Integers convert between widths when they
  // fit.
  virtual StatusOr<uint64_t> Uint(std::string_view key) const = 0;
  virtual StatusOr<double> Float(std::string_view key) const = 0;
  virtual StatusOr<std::string> String(std::string_view key) const = 0;

  // kFailedPrecondition when the file on disk was shrunk, replaced or rewritten since Open (size, mtime, inode).
  virtual Status CheckUnchanged() const = 0;
};

}  // namespace millrace::model
