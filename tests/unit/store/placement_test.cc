#include "common/store/placement.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/random.h"

namespace millrace::store {
namespace {

kv::BlockKey RandomKey(Rng& rng) {
  kv::BlockKey key;
  for (auto& byte : key.bytes) byte = static_cast<uint8_t>(rng.Next32());
  return key;
}

TEST(Placement, OneStoreTakesAll) {
  const std::vector<std::string> one{"127.0.0.1:1"};
  EXPECT_EQ(PickStore({}, one), 0u);
}

TEST(Placement, SpreadsEvenlyAndLosingAStoreMovesOnlyItsChains) {
  const std::vector<std::string> four{"a:1", "b:1", "c:1", "d:1"};
  const std::vector<std::string> three{"a:1", "b:1", "d:1"};
  std::vector<int> count(four.size());
  Rng rng(7);
  for (int i = 0; i < 4000; ++i) {
    const kv::BlockKey key = RandomKey(rng);
    const size_t before = PickStore(key, four);
    ++count[before];
    if (four[before] != "c:1") {
      EXPECT_EQ(three[PickStore(key, three)], four[before]);
    }
  }
  for (const int n : count) {
    EXPECT_GT(n, 850);
    EXPECT_LT(n, 1150);
  }
}

TEST(Placement, OrderOfTheAddressesDoesNotMatter) {
  const std::vector<std::string> forward{"a:1", "b:1", "c:1"};
  const std::vector<std::string> backward{"c:1", "b:1", "a:1"};
  Rng rng(8);
  for (int i = 0; i < 200; ++i) {
    const kv::BlockKey key = RandomKey(rng);
    EXPECT_EQ(forward[PickStore(key, forward)], backward[PickStore(key, backward)]);
  }
}

}  // namespace
}  // namespace millrace::store
