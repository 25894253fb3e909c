#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "common/base/random.h"
#include "common/kv/block_key.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"
#include "common/kv/sha256.h"

namespace millrace::kv {
namespace {

Layout SmallLayout() {
  return {.layers = 2, .kv_heads = 3, .head_dim = 4, .model_digest = "ab", .numerics_class = "cpu-1"};
}

TEST(LayoutTest, SizesFollowFromShape) {
  const Layout layout = SmallLayout();
  EXPECT_EQ(layout.row_bytes(), 2u * 3 * 4 * 2);
  EXPECT_EQ(layout.layer_block_bytes(), 64u * 48);
  EXPECT_EQ(layout.block_bytes(), 2u * 64 * 48);
  EXPECT_EQ(layout.layer_offset(1), 64u * 48);
}

TEST(LayoutTest, EveryFieldChangesTheDigest) {
  std::set<std::string> digests = {SmallLayout().Digest()};
  const auto changed = [&](auto change) {
    Layout layout = SmallLayout();
    change(layout);
    return digests.insert(layout.Digest()).second;
  };
  EXPECT_TRUE(changed([](Layout& l) { l.layers = 3; }));
  EXPECT_TRUE(changed([](Layout& l) { l.kv_heads = 4; }));
  EXPECT_TRUE(changed([](Layout& l) { l.head_dim = 8; }));
  EXPECT_TRUE(changed([](Layout& l) { l.type = ElementType::kF32; }));
  EXPECT_TRUE(changed([](Layout& l) { l.model_digest = "ac"; }));
  EXPECT_TRUE(changed([](Layout& l) { l.numerics_class = "cpu-2"; }));
  EXPECT_EQ(SmallLayout().Digest().size(), 64u);
}

TEST(LayoutTest, LastPromptTokenIsNeverAHit) {
  EXPECT_EQ(MaxHitTokens(0), 0u);
  EXPECT_EQ(MaxHitTokens(1), 0u);
  EXPECT_EQ(MaxHitTokens(64), 0u);
  EXPECT_EQ(MaxHitTokens(65), 64u);
  EXPECT_EQ(MaxHitTokens(128), 64u);
  EXPECT_EQ(MaxHitTokens(129), 128u);
}

TEST(Sha256Test, PublishedVectorWholeAndInPieces) {
  const std::string hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(HexString(Sha256("abc", 3)), hex);
  Sha256Stream stream;
  stream.Update("a", 1);
  stream.Update("bc", 2);
  EXPECT_EQ(HexString(stream.Finish()), hex);
}

// tests/unit/kv/block_key_vectors.py writes the file with Python's hashlib.
TEST(BlockKeyTest, MeetsTheVectorFile) {
  std::ifstream stream("tests/unit/kv/block_key_vectors.json");
  const auto cases = nlohmann::json::parse(stream);
  ASSERT_GE(cases.size(), 4u);
  for (const auto& test : cases) {
    const BlockKey root = RootKey(test["layout_digest"].get<std::string>(), test["tenant_salt"].get<std::string>());
    EXPECT_EQ(root.ToHex(), test["root"].get<std::string>());
    const auto ids = test["ids"].get<std::vector<int32_t>>();
    std::vector<std::string> keys;
    for (const BlockKey& key : BlockKeys(root, ids)) keys.push_back(key.ToHex());
    EXPECT_EQ(keys, test["keys"].get<std::vector<std::string>>());
  }
}

TEST(BlockKeyTest, KeyDependsOnEveryEarlierIdAndOnTheTenant) {
  std::vector<int32_t> ids(192);
  std::iota(ids.begin(), ids.end(), 0);
  const auto keys = BlockKeys(RootKey("layout", ""), ids);
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_NE(BlockKeys(RootKey("layout", "tenant"), ids)[0], keys[0]);
  ids[0] = 99;
  const auto changed = BlockKeys(RootKey("layout", ""), ids);
  for (int i = 0; i < 3; ++i) EXPECT_NE(changed[i], keys[i]);
  EXPECT_EQ(BlockKeys(RootKey("layout", ""), std::vector<int32_t>(63)).size(), 0u);
}

TEST(BlockPoolTest, AllocatesAllOrNothingAndFreesAtTheLastReference) {
  BlockPool pool(4);
  const auto a = pool.Allocate(3);
  ASSERT_EQ(a.size(), 3u);
  EXPECT_TRUE(pool.Allocate(2).empty());
  EXPECT_EQ(pool.free(), 1u);
  pool.Retain(a[0]);
  pool.ReleaseAll(a);
  EXPECT_EQ(pool.held(), 1u);
  pool.Release(a[0]);
  EXPECT_EQ(pool.held(), 0u);
}

TEST(BlockPoolTest, RandomUseNeverHandsABlockOutTwice) {
  Rng rng(3);
  BlockPool pool(50);
  std::vector<BlockIndex> held;
  for (int step = 0; step < 5000; ++step) {
    if (rng.Below(2) == 0) {
      for (const BlockIndex block : pool.Allocate(static_cast<uint32_t>(rng.Below(6)))) {
        ASSERT_EQ(std::count(held.begin(), held.end(), block), 0);
        held.push_back(block);
      }
    } else if (!held.empty()) {
      const size_t at = rng.Below(held.size());
      pool.Release(held[at]);
      held.erase(held.begin() + static_cast<long>(at));
    }
    ASSERT_EQ(pool.held(), held.size());
  }
}

TEST(BlockPoolDeathTest, DoubleFreeDies) {
  BlockPool pool(1);
  const auto blocks = pool.Allocate(1);
  pool.Release(blocks[0]);
  EXPECT_DEATH(pool.Release(blocks[0]), "check failed");
}

}  // namespace
}  // namespace millrace::kv
