#pragma once
// Where the KV rows of one process lie: block and layer to bytes and to the offset that peers read at. A value; the
// memory outlives it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/kv/block_pool.h"
#include "common/kv/layout.h"

namespace millrace::runtime {

class KvPages {
 public:
  KvPages(std::span<std::byte> memory, const kv::Layout& layout)
      : memory_(memory),
        block_bytes_(layout.block_bytes()),
        layer_bytes_(layout.layer_block_bytes()),
        row_bytes_(layout.row_bytes()),
        layers_(layout.layers) {}

  uint32_t layers() const { return layers_; }
  size_t row_bytes() const { return row_bytes_; }
  uint64_t offset(kv::BlockIndex page, uint32_t layer) const { return page * block_bytes_ + layer * layer_bytes_; }
  // The first `tokens` rows of one layer of a block.
  std::span<std::byte> rows(kv::BlockIndex page, uint32_t layer, uint32_t tokens) const {
    return memory_.subspan(offset(page, layer), tokens * row_bytes_);
  }
  std::span<std::byte> block(kv::BlockIndex page) const { return memory_.subspan(offset(page, 0), block_bytes_); }

 private:
  std::span<std::byte> memory_;
  size_t block_bytes_;
  size_t layer_bytes_;
  size_t row_bytes_;
  uint32_t layers_;
};

// Tokens of a sequence of `tokens` that lie in its block `block`.
constexpr uint32_t TokensInBlock(uint32_t tokens, uint32_t block) {
  const uint32_t before = block * kv::kBlockTokens;
  return tokens - before < kv::kBlockTokens ? tokens - before : kv::kBlockTokens;
}

}  // namespace millrace::runtime
