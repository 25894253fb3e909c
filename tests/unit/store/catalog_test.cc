#include "common/store/catalog.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/base/random.h"

namespace millrace::store {
namespace {

constexpr uint64_t kRecord = kRecordAlign;
constexpr int64_t kStart = 1'700'000'000;
constexpr int64_t kHour = 3600;

kv::BlockKey Key(uint32_t n) {
  kv::BlockKey key;
  for (int i = 0; i < 4; ++i) key.bytes[i] = static_cast<uint8_t>(n >> (24 - 8 * i));
  return key;
}

CatalogOptions Options(uint64_t segments, uint64_t records_per_segment) {
  return {.capacity_bytes = segments * records_per_segment * kRecord,
          .segment_bytes = records_per_segment * kRecord,
          .retention = {.chat_seconds = 100 * kHour, .agent_seconds = 50 * kHour, .guaranteed_seconds = 10 * kHour}};
}

// Applies what a tier would do, and checks the cap at every step.
class Disk {
 public:
  explicit Disk(CatalogOptions options) : catalog(options) {}

  bool Put(uint32_t n, int64_t now, RetentionClass retention = RetentionClass::kChat) {
    if (!catalog.FitsActive(kRecord)) Roll();
    while (!catalog.HasRoom(kRecord)) {
      const auto plan = catalog.PlanReclaim(now);
      if (!plan.has_value()) return false;
      Apply(*plan);
    }
    Append(catalog.Describe(Key(n), retention, now));
    return true;
  }

  void Append(RecordHeader header) {
    if (!catalog.FitsActive(kRecord)) Roll();
    header.length = 100;
    const uint64_t id = *catalog.active();
    const uint64_t at = catalog.segment_bytes(id);
    catalog.SetSegmentBytes(id, at + kRecord);
    catalog.Insert({.segment = id, .offset = at, .header = header});
    EXPECT_LE(catalog.file_bytes(), catalog.options().capacity_bytes);
  }

  void Apply(const ReclaimPlan& plan) {
    const uint64_t before = catalog.file_bytes();
    const uint64_t gone = catalog.segment_bytes(plan.segment);
    for (const auto& key : plan.move) {
      const IndexRow* row = catalog.Find(key, 0);
      ASSERT_NE(row, nullptr);
      Append(row->header);
    }
    for (const auto& key : plan.evict) evicted.insert(key);
    catalog.RemoveSegment(plan.segment);
    EXPECT_LE(catalog.file_bytes() + gone / 2, before);
  }

  bool Has(uint32_t n, int64_t now) { return catalog.Find(Key(n), now) != nullptr; }

  Catalog catalog;
  std::set<kv::BlockKey> evicted;

 private:
  void Roll() {
    catalog.AddSegment(next_, 0);
    catalog.Activate(next_++);
  }
  uint64_t next_ = 1;
};

TEST(Catalog, PrefixEndsAtTheFirstMissingKey) {
  Disk disk(Options(8, 4));
  for (const uint32_t n : {0, 1, 3}) ASSERT_TRUE(disk.Put(n, kStart));
  const std::vector<kv::BlockKey> keys{Key(0), Key(1), Key(2), Key(3)};
  EXPECT_EQ(disk.catalog.ContainsPrefix(keys, kStart), 2u);
  EXPECT_EQ(disk.catalog.ContainsPrefix({}, kStart), 0u);
}

TEST(Catalog, ExpiredRowsAreAbsentAndTheirSegmentsGoWithoutPressure) {
  Disk disk(Options(8, 4));
  for (uint32_t n = 0; n < 4; ++n) ASSERT_TRUE(disk.Put(n, kStart, RetentionClass::kAgent));
  for (uint32_t n = 4; n < 6; ++n) ASSERT_TRUE(disk.Put(n, kStart));
  EXPECT_TRUE(disk.Has(0, kStart + 49 * kHour));
  EXPECT_FALSE(disk.Has(0, kStart + 50 * kHour));
  EXPECT_TRUE(disk.catalog.PlanExpiry(kStart + 49 * kHour).empty());
  const auto plans = disk.catalog.PlanExpiry(kStart + 50 * kHour);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].expire.size(), 4u);
  disk.Apply(plans[0]);
  EXPECT_EQ(disk.catalog.blocks(), 2u);
  EXPECT_TRUE(disk.evicted.empty());
}

TEST(Catalog, GuaranteedBlocksAreNeverEvictedAndPutsAreRefusedInstead) {
  Disk disk(Options(4, 4));
  uint32_t n = 0;
  while (disk.Put(n, kStart + n)) ++n;
  EXPECT_EQ(n, 14u);  // 16 records less half a segment in reserve
  EXPECT_TRUE(disk.evicted.empty());
  EXPECT_FALSE(disk.Put(100, kStart + 9 * kHour));
  EXPECT_TRUE(disk.Put(100, kStart + 11 * kHour));  // the guarantee ran out
  EXPECT_EQ(disk.evicted, (std::set<kv::BlockKey>{Key(0), Key(1), Key(2), Key(3)}));
}

TEST(Catalog, ExpiredGoesBeforeUnused) {
  Disk disk(Options(4, 4));
  for (uint32_t n = 0; n < 4; ++n) ASSERT_TRUE(disk.Put(n, kStart));
  for (uint32_t n = 4; n < 8; ++n) ASSERT_TRUE(disk.Put(n, kStart, RetentionClass::kAgent));
  for (uint32_t n = 8; n < 14; ++n) ASSERT_TRUE(disk.Put(n, kStart));
  ASSERT_TRUE(disk.Put(14, kStart + 60 * kHour));
  EXPECT_TRUE(disk.evicted.empty());
  EXPECT_TRUE(disk.Has(0, kStart + 60 * kHour));
  EXPECT_EQ(disk.catalog.blocks(), 11u);
}

TEST(Catalog, BlocksHitSinceWrittenMoveAndColdOnesGo) {
  Disk disk(Options(4, 4));
  for (uint32_t n = 0; n < 14; ++n) ASSERT_TRUE(disk.Put(n, kStart));
  disk.catalog.Touch(Key(1));  // the oldest segment stays the least used on average
  const int64_t later = kStart + 20 * kHour;
  ASSERT_TRUE(disk.Put(14, later));
  EXPECT_TRUE(disk.Has(1, later));
  EXPECT_EQ(disk.evicted, (std::set<kv::BlockKey>{Key(0), Key(2), Key(3)}));
}

TEST(Catalog, TheSegmentUnusedForTheLongestTimeGoesFirst) {
  Disk disk(Options(4, 4));
  for (uint32_t n = 0; n < 14; ++n) ASSERT_TRUE(disk.Put(n, kStart));
  for (uint32_t n = 0; n < 4; ++n) disk.catalog.Touch(Key(n));
  ASSERT_TRUE(disk.Put(14, kStart + 20 * kHour));
  EXPECT_EQ(disk.evicted, (std::set<kv::BlockKey>{Key(4), Key(5), Key(6), Key(7)}));
}

TEST(Catalog, WrongClockDoesNotPinBlocksForEver) {
  Disk disk(Options(4, 4));
  const int64_t wrong = kStart + 1000 * kHour;
  for (uint32_t n = 0; n < 14; ++n) ASSERT_TRUE(disk.Put(n, wrong));
  EXPECT_TRUE(disk.Put(14, kStart));
}

TEST(Catalog, ReplacedRowLeavesItsOldBytesDead) {
  Disk disk(Options(8, 4));
  for (int round = 0; round < 5; ++round) ASSERT_TRUE(disk.Put(7, kStart + round));
  EXPECT_EQ(disk.catalog.blocks(), 1u);
  EXPECT_EQ(disk.catalog.live_bytes(), kRecord);
  EXPECT_EQ(disk.catalog.file_bytes(), 5 * kRecord);
  EXPECT_EQ(disk.catalog.PlanExpiry(kStart + 5).size(), 1u);
}

TEST(Catalog, RandomUseKeepsTheCapTheGuaranteeAndTheAccounting) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Rng rng(seed);
    Disk disk(Options(4 + rng.Below(5), 4 + rng.Below(9)));
    std::map<uint32_t, int64_t> written;
    int64_t now = kStart;
    for (int step = 0; step < 3000; ++step) {
      now += static_cast<int64_t>(rng.Below(kHour));
      const auto n = static_cast<uint32_t>(rng.Below(200));
      if (rng.Below(3) == 0) {
        disk.catalog.Touch(Key(n));
      } else if (!disk.Has(n, now) && disk.Put(n, now)) {
        written[n] = now;
        disk.evicted.erase(Key(n));
      }
      for (const auto& [block, at] : written) {
        if (now - at < 10 * kHour) {
          ASSERT_TRUE(disk.Has(block, now)) << "seed " << seed << " step " << step << " block " << block;
        }
      }
      ASSERT_LE(disk.catalog.live_bytes(), disk.catalog.file_bytes());
    }
  }
}

}  // namespace
}  // namespace millrace::store
