#pragma once
// Accounting of one contiguous memory area cut into buffers of any size: which offsets are taken. Knows offsets, not
// memory. First fit, neighbours merged on release. Single-threaded.

#include <cstdint>
#include <map>
#include <optional>

namespace millrace::store {

class BufferArena {
 public:
  // Every buffer starts at, and takes, a multiple of `align` bytes.
  BufferArena(uint64_t bytes, uint64_t align);

  std::optional<uint64_t> Allocate(uint64_t bytes);  // offset; empty when no gap is large enough or bytes is 0
  void Release(uint64_t offset);                     // precondition: allocated

  uint64_t total_bytes() const { return total_; }
  uint64_t used_bytes() const { return used_; }
  uint32_t buffers() const { return static_cast<uint32_t>(taken_.size()); }

 private:
  const uint64_t total_;
  const uint64_t align_;
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> gaps_;   // offset -> size; no two touch
  std::map<uint64_t, uint64_t> taken_;  // offset -> size
};

}  // namespace millrace::store
