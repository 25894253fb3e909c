#pragma once
// The Backend on the processor: AVX2 or AVX-512, chosen at run time; both give the same bits.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/engine/backend.h"
#include "common/engine/cpu/isa.h"
#include "common/model/gguf.h"

namespace millrace::engine {

// All instruction sets compute the same bits. Changes with any change of results.
inline constexpr char kCpuNumericsClass[] = "cpu-1";

struct CpuOptions {
  std::string model_path;
  uint32_t threads = 0;  // 0: as many as processors are available to the process
  cpu::Isa isa = cpu::Isa::kAuto;
  kv::ElementType kv_type = kv::ElementType::kF16;
  uint64_t kv_bytes = uint64_t{512} << 20;  // rounded down to whole blocks, at least 1
  uint32_t kv_blocks = 0;                   // when not 0, instead of kv_bytes
  // Where KV memory comes from, e.g. memory of a transport that peers read without a copy: 64-byte aligned, zeroed,
  // outlives the backend. Empty: private memory.
  std::function<StatusOr<std::span<std::byte>>(uint64_t bytes)> allocate_kv;
  uint32_t context_tokens = 0;  // 0: the model's; at most the model's
  // Where packed weights and digests are kept. Unset folder: $XDG_CACHE_HOME/millrace, else ~/.cache/millrace.
  std::string cache_dir;
  bool use_cache = true;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;  // while weights are packed; may be empty
};

// Loads model_path; blocks for as long as that takes. layout().model_digest is the file's SHA-256. kNotFound,
// kInvalidArgument, kUnimplemented: the model; kFailedPrecondition: the machine, or the file changed meanwhile.
StatusOr<std::unique_ptr<Backend>> OpenCpuBackend(const CpuOptions& options);

// The same over a file that is open already and whose digest is known; model_path is not used.
StatusOr<std::unique_ptr<Backend>> OpenCpuBackend(const CpuOptions& options, const model::GgufFile& file,
                                                  const std::string& model_digest);

}  // namespace millrace::engine
