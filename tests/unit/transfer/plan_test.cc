#include "common/transfer/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/base/random.h"

namespace millrace::transfer {
namespace {

kv::Layout SmallLayout() { return {.layers = 3, .kv_heads = 2, .head_dim = 4, .type = kv::ElementType::kF16}; }

TEST(FinishedBlocks, EachBlockOnceHoweverThePromptIsCut) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    const uint32_t total = 1 + static_cast<uint32_t>(rng.Below(700));
    std::vector<int> seen(kv::BlocksFor(total));
    uint32_t done = 0;
    while (done < total) {
      const uint32_t next = done + 1 + static_cast<uint32_t>(rng.Below(std::min(total - done, 200u)));
      const BlockSpan span = FinishedBlocks(done, next, total);
      for (uint32_t block = span.first; block < span.last; ++block) {
        ++seen[block];
        EXPECT_LE(std::min((block + 1) * kv::kBlockTokens, total), next) << "announced before it was computed";
      }
      done = next;
    }
    for (int count : seen) EXPECT_EQ(count, 1) << total;
  }
}

TEST(FinishedBlocks, NothingNewWithoutAFullBlock) {
  EXPECT_EQ(FinishedBlocks(0, 63, 100), (BlockSpan{0, 0}));
  EXPECT_EQ(FinishedBlocks(63, 64, 100), (BlockSpan{0, 1}));
  EXPECT_EQ(FinishedBlocks(64, 100, 100), (BlockSpan{1, 2}));
  EXPECT_EQ(FinishedBlocks(100, 100, 100), (BlockSpan{2, 2}));
}

TEST(LayerBlocks, OffsetsFollowTheLayoutAndTheLastBlockIsCut) {
  const kv::Layout layout = SmallLayout();
  const std::vector<kv::BlockIndex> blocks = {5, 2};
  const auto ranges = LayerBlocks(layout, blocks, 70, 1, {0, 2});
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].offset, 5 * layout.block_bytes() + layout.layer_block_bytes());
  EXPECT_EQ(ranges[0].length, layout.layer_block_bytes());
  EXPECT_EQ(ranges[1].offset, 2 * layout.block_bytes() + layout.layer_block_bytes());
  EXPECT_EQ(ranges[1].length, 6 * layout.row_bytes());
}

TEST(LayerBlocks, AllLayersAndBlocksCoverTheSequenceWithoutOverlap) {
  const kv::Layout layout = SmallLayout();
  const std::vector<kv::BlockIndex> blocks = {9, 0, 4};
  std::map<uint64_t, uint64_t> ranges;
  uint64_t bytes = 0;
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    for (const LayerBlockRange& range : LayerBlocks(layout, blocks, 150, layer, {0, 3})) {
      ranges[range.offset] = range.length;
      bytes += range.length;
    }
  }
  EXPECT_EQ(bytes, 150 * layout.row_bytes() * layout.layers);
  uint64_t end = 0;
  for (const auto& [offset, length] : ranges) {
    EXPECT_GE(offset, end);
    end = offset + length;
  }
}

TEST(Coalesce, JoinsOnlyWhatTouchesOnBothSides) {
  const auto gets = Coalesce({{300, 1300, 100, 3}, {0, 1000, 100, 0}, {100, 1100, 100, 1}, {200, 5000, 100, 2}}, 1000);
  ASSERT_EQ(gets.size(), 3u);
  EXPECT_EQ(gets[0].length, 200u);
  ASSERT_EQ(gets[0].pieces.size(), 2u);
  EXPECT_EQ(gets[0].pieces[1].tag, 1u);
  EXPECT_EQ(gets[1].destination, 5000u);
  EXPECT_EQ(gets[2].source, 300u);
}

TEST(Coalesce, BoundsEachGetAndLeavesLongPiecesAlone) {
  const auto gets = Coalesce({{0, 0, 60, 0}, {60, 60, 60, 1}, {120, 120, 40, 2}, {160, 160, 500, 3}}, 100);
  ASSERT_EQ(gets.size(), 3u);
  EXPECT_EQ(gets[0].length, 60u);
  EXPECT_EQ(gets[1].length, 100u);
  EXPECT_EQ(gets[2].length, 500u);
}

TEST(Coalesce, RandomPiecesKeepEveryByteAtItsPlace) {
  Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<Piece> pieces;
    uint64_t source = 0;
    for (uint64_t i = 0; i < 40; ++i) {
      source += rng.Below(2) * 16;
      pieces.push_back({source, source + (rng.Below(8) == 0 ? 4096 : 0), 16, i});
      source += 16;
    }
    std::set<uint64_t> tags;
    for (const PlannedGet& get : Coalesce(pieces, 64)) {
      EXPECT_LE(get.length, 64u);
      uint64_t at = 0;
      for (const Piece& piece : get.pieces) {
        EXPECT_EQ(piece, pieces[piece.tag]);
        EXPECT_EQ(piece.source, get.source + at);
        EXPECT_EQ(piece.destination, get.destination + at);
        at += piece.length;
        EXPECT_TRUE(tags.insert(piece.tag).second);
      }
      EXPECT_EQ(at, get.length);
    }
    EXPECT_EQ(tags.size(), pieces.size());
  }
}

TEST(GetWindow, HoldsBytesAndGetsUnderTheBounds) {
  GetWindow window(100, 3);
  for (uint64_t i = 0; i < 5; ++i) window.Push({i, i, 40, {}});
  ASSERT_TRUE(window.Start());
  ASSERT_TRUE(window.Start());
  EXPECT_FALSE(window.Start());
  EXPECT_EQ(window.bytes_in_flight(), 80u);
  window.Finish(40);
  EXPECT_EQ(window.Start()->source, 2u);
  EXPECT_EQ(window.waiting(), 2u);
}

TEST(GetWindow, CountsGetsToo) {
  GetWindow window(1000, 2);
  for (uint64_t i = 0; i < 3; ++i) window.Push({i, i, 1, {}});
  EXPECT_TRUE(window.Start());
  EXPECT_TRUE(window.Start());
  EXPECT_FALSE(window.Start());
}

TEST(GetWindow, OneGetLongerThanTheWindowRunsAlone) {
  GetWindow window(100, 4);
  window.Push({0, 0, 10, {}});
  window.Push({1, 1, 500, {}});
  window.Push({2, 2, 10, {}});
  ASSERT_TRUE(window.Start());
  EXPECT_FALSE(window.Start());
  window.Finish(10);
  EXPECT_EQ(window.Start()->length, 500u);
  EXPECT_FALSE(window.Start());
  window.Finish(500);
  EXPECT_TRUE(window.Start());
}

}  // namespace
}  // namespace millrace::transfer
