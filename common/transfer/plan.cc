#include "common/transfer/plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/base/check.h"

namespace millrace::transfer {

BlockSpan FinishedBlocks(uint32_t before, uint32_t after, uint32_t total) {
  MR_CHECK(before <= after && after <= total);
  const auto finished = [total](uint32_t computed) {
    return computed == total ? kv::BlocksFor(total) : computed / kv::kBlockTokens;
  };
  return {finished(before), finished(after)};
}

LayerBlockRange LayerBlock(const kv::Layout& layout, std::span<const kv::BlockIndex> blocks, uint32_t tokens,
                           uint32_t layer, uint32_t block) {
  MR_CHECK(layer < layout.layers && block < blocks.size() && block < kv::BlocksFor(tokens));
  const uint32_t in_block = std::min(kv::kBlockTokens, tokens - block * kv::kBlockTokens);
  return {.layer = layer,
          .block = block,
          .offset = uint64_t{blocks[block]} * layout.block_bytes() + layout.layer_offset(layer),
          .length = static_cast<uint32_t>(in_block * layout.row_bytes())};
}

std::vector<LayerBlockRange> LayerBlocks(const kv::Layout& layout, std::span<const kv::BlockIndex> blocks,
                                         uint32_t tokens, uint32_t layer, BlockSpan span) {
  std::vector<LayerBlockRange> out;
  if (span.first < span.last) out.reserve(span.last - span.first);
  for (uint32_t block = span.first; block < span.last; ++block) {
    out.push_back(LayerBlock(layout, blocks, tokens, layer, block));
  }
  return out;
}

std::vector<PlannedGet> Coalesce(std::vector<Piece> pieces, uint64_t max_bytes) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.source, a.destination, a.tag) < std::tie(b.source, b.destination, b.tag);
  });
  std::vector<PlannedGet> gets;
  for (const Piece& piece : pieces) {
    PlannedGet* last = gets.empty() ? nullptr : &gets.back();
    const bool joins = last != nullptr && last->source + last->length == piece.source &&
                       last->destination + last->length == piece.destination && last->length <= max_bytes &&
                       piece.length <= max_bytes - last->length;
    if (!joins) {
      gets.push_back({piece.source, piece.destination, 0, {}});
      last = &gets.back();
    }
    last->length += piece.length;
    last->pieces.push_back(piece);
  }
  return gets;
}

std::optional<PlannedGet> GetWindow::Start() {
  if (waiting_.empty() || gets_ >= max_gets_) return std::nullopt;
  const uint64_t length = waiting_.front().length;
  const bool fits = bytes_ <= max_bytes_ && length <= max_bytes_ - bytes_;
  if (!fits && gets_ > 0) return std::nullopt;
  PlannedGet get = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_ += length;
  ++gets_;
  return get;
}

void GetWindow::Finish(uint64_t length) {
  MR_CHECK(gets_ > 0 && length <= bytes_);
  bytes_ -= length;
  --gets_;
}

}  // namespace millrace::transfer
