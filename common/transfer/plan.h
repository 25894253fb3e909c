#pragma once
// Which bytes move: from blocks, layout and tokens to byte ranges, from ranges to gets, and how many gets may be under
// way. Pure; knows offsets, not memory. Offsets are relative to the start of a process's KV memory, in which block i
// lies at i * layout.block_bytes().

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "common/kv/block_pool.h"
#include "common/kv/layout.h"

namespace millrace::transfer {

// One layer of one block of a sequence.
struct LayerBlockRange {
  uint32_t layer = 0;
  uint32_t block = 0;   // index within the sequence
  uint64_t offset = 0;  // in KV memory
  uint32_t length = 0;  // bytes: tokens of the sequence in this block * row_bytes()
  friend bool operator==(const LayerBlockRange&, const LayerBlockRange&) = default;
};

struct BlockSpan {
  uint32_t first = 0;
  uint32_t last = 0;  // exclusive
  friend bool operator==(const BlockSpan&, const BlockSpan&) = default;
};

// Blocks of a sequence of `total` tokens that become final when its computed tokens grow from `before` to `after`: the
// full ones, and the last partial one once after == total. Over steps that cover [0, total) each block appears once.
// Precondition: before <= after <= total.
BlockSpan FinishedBlocks(uint32_t before, uint32_t after, uint32_t total);

// Where block `block` of a sequence of `tokens` tokens lies for `layer`; blocks[i] is the page of the sequence's block
// i. Preconditions: layer < layout.layers, block < blocks.size(), block < BlocksFor(tokens).
LayerBlockRange LayerBlock(const kv::Layout& layout, std::span<const kv::BlockIndex> blocks, uint32_t tokens,
                           uint32_t layer, uint32_t block);

// The ranges of `layer` for the blocks of `span`, in order.
std::vector<LayerBlockRange> LayerBlocks(const kv::Layout& layout, std::span<const kv::BlockIndex> blocks,
                                         uint32_t tokens, uint32_t layer, BlockSpan span);

// Bytes to copy from a peer's region to this process's memory.
struct Piece {
  uint64_t source = 0;       // offset in the peer's region
  uint64_t destination = 0;  // offset in this process's KV memory
  uint64_t length = 0;
  uint64_t tag = 0;  // the caller's name for it
  friend bool operator==(const Piece&, const Piece&) = default;
};

// One get, which covers `pieces` without a gap, in order.
struct PlannedGet {
  uint64_t source = 0;
  uint64_t destination = 0;
  uint64_t length = 0;
  std::vector<Piece> pieces;
};

// Sorts by source and joins pieces that touch on both sides, up to max_bytes a get; a longer piece is a get of its own.
std::vector<PlannedGet> Coalesce(std::vector<Piece> pieces, uint64_t max_bytes);

// The gets of one link that are waiting and under way. At most `max_bytes` and `max_gets` are under way at once, except
// that one get alone may be longer. First in, first out.
class GetWindow {
 public:
  GetWindow(uint64_t max_bytes, uint32_t max_gets) : max_bytes_(max_bytes), max_gets_(max_gets) {}

  void Push(PlannedGet get) { waiting_.push_back(std::move(get)); }
  // The next get to start, if there is one and it fits.
  std::optional<PlannedGet> Start();
  // A get handed out by Start() ended, well or not.
  void Finish(uint64_t length);

  size_t waiting() const { return waiting_.size(); }
  uint32_t gets_in_flight() const { return gets_; }
  uint64_t bytes_in_flight() const { return bytes_; }

 private:
  const uint64_t max_bytes_;
  const uint32_t max_gets_;
  uint64_t bytes_ = 0;
  uint32_t gets_ = 0;
  std::deque<PlannedGet> waiting_;
};

}  // namespace millrace::transfer
