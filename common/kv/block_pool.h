#pragma once
// Accounting of one process's KV blocks: which are free, which are held and by how many. Knows indices, not memory.
// Single-threaded. Copying a page index copies no reference: whoever allocated or retained must release once.

#include <cstdint>
#include <vector>

namespace millrace::kv {

using BlockIndex = uint32_t;

class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks);

  // All or nothing: `count` blocks with one reference each, or an empty vector when fewer are free (count 0 is empty
  // too).
  std::vector<BlockIndex> Allocate(uint32_t count);
  void Retain(BlockIndex block);   // precondition: held
  void Release(BlockIndex block);  // precondition: held; free again at the last reference
  void ReleaseAll(const std::vector<BlockIndex>& blocks);

  uint32_t total() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t held() const { return total() - free(); }

 private:
  std::vector<uint32_t> references_;
  std::vector<BlockIndex> free_;  // the last one is handed out first
};

}  // namespace millrace::kv
