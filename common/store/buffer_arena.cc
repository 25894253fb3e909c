#include "common/store/buffer_arena.h"

#include <iterator>

#include "common/base/check.h"

namespace millrace::store {

BufferArena::BufferArena(uint64_t bytes, uint64_t align) : total_(bytes / align * align), align_(align) {
  if (total_ > 0) gaps_.emplace(0, total_);
}

std::optional<uint64_t> BufferArena::Allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > total_) return std::nullopt;
  const uint64_t size = (bytes + align_ - 1) / align_ * align_;
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < size) continue;
    const uint64_t offset = gap->first;
    const uint64_t rest = gap->second - size;
    gaps_.erase(gap);
    if (rest > 0) gaps_.emplace(offset + size, rest);
    taken_.emplace(offset, size);
    used_ += size;
    return offset;
  }
  return std::nullopt;
}

void BufferArena::Release(uint64_t offset) {
  const auto taken = taken_.find(offset);
  MR_CHECK(taken != taken_.end());
  uint64_t size = taken->second;
  used_ -= size;
  taken_.erase(taken);
  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + size) {
    size += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  gaps_.emplace(offset, size);
}

}  // namespace millrace::store
