#include "common/kv/block_pool.h"

#include "common/base/check.h"

namespace millrace::kv {

BlockPool::BlockPool(uint32_t blocks) : references_(blocks, 0) {
  free_.reserve(blocks);
  for (uint32_t i = blocks; i > 0; --i) free_.push_back(i - 1);
}

std::vector<BlockIndex> BlockPool::Allocate(uint32_t count) {
  if (count > free_.size()) return {};
  std::vector<BlockIndex> blocks(free_.end() - count, free_.end());
  free_.resize(free_.size() - count);
  for (const BlockIndex block : blocks) references_[block] = 1;
  return blocks;
}

void BlockPool::Retain(BlockIndex block) {
  MR_CHECK(references_.at(block) > 0);
  ++references_[block];
}

void BlockPool::Release(BlockIndex block) {
  MR_CHECK(references_.at(block) > 0);
  if (--references_[block] == 0) free_.push_back(block);
}

void BlockPool::ReleaseAll(const std::vector<BlockIndex>& blocks) {
  for (const BlockIndex block : blocks) Release(block);
}

}  // namespace millrace::kv
