// What every implementation of store::Tier must do, plain and behind the fault decorator.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <thread>

#include "common/store/fault/fault_tier.h"
#include "common/store/memory/memory_tier.h"
#include "common/store/rocksdb/rocksdb_tier.h"
#include "tests/conformance/tier_fixture.h"

namespace millrace::store {
namespace {

constexpr int64_t kHour = 3600;

struct Implementation {
  std::string name;
  std::function<StatusOr<std::unique_ptr<Tier>>(TierOptions)> open;
};

// Owns the tier that it decorates with faults, all switched off.
class QuietFaultTier final : public Tier {
 public:
  explicit QuietFaultTier(std::unique_ptr<Tier> tier) : tier_(std::move(tier)), fault_(*tier_, faults_) {}
  std::vector<Status> Put(std::span<const TierPut> batch) override { return fault_.Put(batch); }
  StatusOr<uint32_t> Get(const kv::BlockKey& key, std::span<std::byte> into) override { return fault_.Get(key, into); }
  uint32_t ContainsPrefix(std::span<const kv::BlockKey> keys) const override { return fault_.ContainsPrefix(keys); }
  TierStats Stats() const override { return fault_.Stats(); }
  Status Close() override { return fault_.Close(); }

 private:
  std::unique_ptr<Tier> tier_;
  TierFaults faults_;
  FaultTier fault_;
};

std::vector<Implementation> Implementations() {
  return {{"memory", OpenMemoryTier},
          {"rocksdb", OpenRocksdbTier},
          {"rocksdb_fsync",
           [](TierOptions options) {
             options.fsync = true;
             return OpenRocksdbTier(std::move(options));
           }},
          {"fault", [](TierOptions options) -> StatusOr<std::unique_ptr<Tier>> {
             MR_ASSIGN_OR_RETURN(auto tier, OpenMemoryTier(std::move(options)));
             return std::unique_ptr<Tier>(std::make_unique<QuietFaultTier>(std::move(tier)));
           }}};
}

class TierConformance : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    options_.path = folder_.path() + "/store";
    options_.capacity_bytes = 4 << 20;
    options_.retention = {.chat_seconds = 100 * kHour, .agent_seconds = 50 * kHour, .guaranteed_seconds = 10 * kHour};
    options_.unix_seconds = clock_.Reader();
  }
  void Open() {
    auto tier = GetParam().open(options_);
    ASSERT_TRUE(tier.ok()) << tier.status().ToString();
    tier_ = *std::move(tier);
  }

  TemporaryFolder folder_;
  TestClock clock_;
  TierOptions options_;
  std::unique_ptr<Tier> tier_;
};

TEST_P(TierConformance, WhatWasPutIsThereAndTheRestIsNot) {
  Open();
  const TestBlock one(1), two(2, 4096), three(3, 1);
  for (const auto* block : {&one, &two, &three}) ASSERT_TRUE(PutBlock(*tier_, *block).ok());
  for (const auto* block : {&one, &two, &three}) EXPECT_TRUE(CheckBlock(*tier_, *block).ok());
  EXPECT_EQ(CheckBlock(*tier_, TestBlock(4)).code(), Code::kNotFound);
  EXPECT_EQ(tier_->Stats().blocks, 3u);
}

TEST_P(TierConformance, PrefixEndsAtTheFirstGap) {
  Open();
  std::vector<kv::BlockKey> keys;
  for (uint64_t n = 0; n < 5; ++n) {
    const TestBlock block(n);
    keys.push_back(block.key);
    if (n != 3) {
      ASSERT_TRUE(PutBlock(*tier_, block).ok());
    }
  }
  EXPECT_EQ(tier_->ContainsPrefix(keys), 3u);
  EXPECT_EQ(tier_->ContainsPrefix({}), 0u);
}

TEST_P(TierConformance, BatchIsPutInOrderWithOneStatusEach) {
  Open();
  const TestBlock one(1), two(2), huge(3, 2 << 20);
  const std::vector<TierPut> batch{one.put(), huge.put(), two.put(), {.key = TestBlock(9).key}, one.put()};
  const auto statuses = tier_->Put(batch);
  ASSERT_EQ(statuses.size(), 5u);
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_EQ(statuses[1].code(), Code::kInvalidArgument);
  EXPECT_TRUE(statuses[2].ok());
  EXPECT_EQ(statuses[3].code(), Code::kInvalidArgument);
  EXPECT_TRUE(statuses[4].ok());
  EXPECT_TRUE(CheckBlock(*tier_, one).ok());
  EXPECT_TRUE(CheckBlock(*tier_, two).ok());
  EXPECT_TRUE(tier_->Put({}).empty());
}

TEST_P(TierConformance, PuttingAgainCostsNothing) {
  Open();
  const TestBlock block(1);
  ASSERT_TRUE(PutBlock(*tier_, block).ok());
  const uint64_t used = tier_->Stats().used_bytes;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(PutBlock(*tier_, block).ok());
  EXPECT_EQ(tier_->Stats().used_bytes, used);
  EXPECT_EQ(tier_->Stats().blocks, 1u);
}

TEST_P(TierConformance, BufferOfAnotherSizeIsRefused) {
  Open();
  const TestBlock block(1, 5000);
  ASSERT_TRUE(PutBlock(*tier_, block).ok());
  for (const size_t size : {0, 4999, 5001}) {
    std::vector<std::byte> into(size);
    EXPECT_EQ(tier_->Get(block.key, into).status().code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(CheckBlock(*tier_, block).ok());
}

TEST_P(TierConformance, BytesThatWereWrongWhenPutAreNeverReturned) {
  Open();
  const TestBlock block(1);
  TierPut put = block.put();
  put.crc32c ^= 1;
  ASSERT_TRUE(tier_->Put({&put, 1}).front().ok());
  EXPECT_EQ(CheckBlock(*tier_, block).reason(), Reason::kKvCorrupt);
  EXPECT_EQ(tier_->Stats().corrupt, 1u);
  EXPECT_EQ(tier_->ContainsPrefix({&block.key, 1}), 0u);
  EXPECT_EQ(CheckBlock(*tier_, block).code(), Code::kNotFound);
  ASSERT_TRUE(PutBlock(*tier_, block).ok());
  EXPECT_TRUE(CheckBlock(*tier_, block).ok());
}

TEST_P(TierConformance, NeverTakesMoreThanItsCapacityAndKeepsTheNewest) {
  Open();
  std::map<uint64_t, int64_t> written;
  for (uint64_t n = 0; n < 600; ++n) {
    *clock_.now += 600;
    ASSERT_TRUE(PutBlock(*tier_, TestBlock(n)).ok()) << n;
    ASSERT_LE(tier_->Stats().used_bytes, options_.capacity_bytes);
    written[n] = *clock_.now;
  }
  EXPECT_GT(tier_->Stats().evicted, 0u);
  EXPECT_GT(tier_->Stats().blocks, 150u);
  for (const auto& [n, at] : written) {
    const Status status = CheckBlock(*tier_, TestBlock(n));
    EXPECT_TRUE(status.ok() || status.code() == Code::kNotFound) << status.ToString();
    if (*clock_.now - at < 10 * kHour) {
      EXPECT_TRUE(status.ok()) << n;
    }
  }
}

TEST_P(TierConformance, FullOfGuaranteedBlocksRefusesPutsAndReadsGoOn) {
  Open();
  uint64_t n = 0;
  Status status;
  while (status.ok() && n < 1000) status = PutBlock(*tier_, TestBlock(n++));
  EXPECT_EQ(status.reason(), Reason::kNoSpace) << status.ToString();
  EXPECT_TRUE(tier_->Stats().guarantee_full);
  EXPECT_EQ(tier_->Stats().evicted, 0u);
  for (uint64_t k = 0; k + 1 < n; ++k) EXPECT_TRUE(CheckBlock(*tier_, TestBlock(k)).ok());
  *clock_.now += 11 * kHour;
  EXPECT_TRUE(PutBlock(*tier_, TestBlock(n)).ok());
  EXPECT_FALSE(tier_->Stats().guarantee_full);
}

TEST_P(TierConformance, BelowTheFloorRefusesPutsAndReadsGoOn) {
  if (GetParam().name != "memory" && GetParam().name != "fault")
    options_.min_free_bytes = 1ull << 60;
  else
    options_.min_free_bytes = options_.capacity_bytes;
  Open();
  EXPECT_EQ(PutBlock(*tier_, TestBlock(1)).reason(), Reason::kNoSpace);
  EXPECT_EQ(tier_->Stats().blocks, 0u);
}

TEST_P(TierConformance, ExpiredBlocksAreAbsent) {
  Open();
  const TestBlock agent(1), chat(2);
  const std::vector<TierPut> batch{agent.put(RetentionClass::kAgent), chat.put(RetentionClass::kChat)};
  for (const auto& status : tier_->Put(batch)) ASSERT_TRUE(status.ok());
  *clock_.now += 50 * kHour;
  EXPECT_EQ(CheckBlock(*tier_, agent).code(), Code::kNotFound);
  EXPECT_TRUE(CheckBlock(*tier_, chat).ok());
  EXPECT_TRUE(PutBlock(*tier_, agent).ok());
  EXPECT_TRUE(CheckBlock(*tier_, agent).ok());
}

TEST_P(TierConformance, AfterCloseNothingIsTakenAndNothingFound) {
  Open();
  const TestBlock block(1);
  ASSERT_TRUE(PutBlock(*tier_, block).ok());
  EXPECT_TRUE(tier_->Close().ok());
  EXPECT_TRUE(tier_->Close().ok());
  EXPECT_EQ(PutBlock(*tier_, TestBlock(2)).code(), Code::kFailedPrecondition);
  EXPECT_EQ(CheckBlock(*tier_, block).code(), Code::kNotFound);
  EXPECT_EQ(tier_->ContainsPrefix({&block.key, 1}), 0u);
}

TEST_P(TierConformance, ReadersAndWritersAtOnceSeeOnlyRightBlocks) {
  options_.retention.guaranteed_seconds = 0;
  Open();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(t + 1);
      for (int i = 0; i < 300; ++i) {
        const TestBlock block(rng.Below(500), 9000);
        if (t % 2 == 0) {
          if (!PutBlock(*tier_, block).ok()) ++wrong;
        } else {
          const Status status = CheckBlock(*tier_, block);
          if (!status.ok() && status.code() != Code::kNotFound) ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(tier_->Stats().corrupt, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, TierConformance, testing::ValuesIn(Implementations()),
                         [](const auto& info) { return info.param.name; });

TEST(FaultTier, FailsAsTold) {
  TestClock clock;
  auto memory = OpenMemoryTier({.capacity_bytes = 4 << 20, .unix_seconds = clock.Reader()});
  ASSERT_TRUE(memory.ok());
  TierFaults faults;
  FaultTier tier(**memory, faults);
  const TestBlock one(1), two(2);
  faults.writable_bytes = 15000;
  EXPECT_TRUE(PutBlock(tier, one).ok());
  EXPECT_EQ(PutBlock(tier, two).reason(), Reason::kNoSpace);
  EXPECT_TRUE(PutBlock(tier, one).ok());
  faults.read_fails = true;
  EXPECT_EQ(CheckBlock(tier, one).reason(), Reason::kKvCorrupt);
  faults.read_fails = false;
  faults.read_corrupts = true;
  EXPECT_EQ(CheckBlock(tier, one).message(), "WRONG BYTES");
  faults.read_corrupts = false;
  EXPECT_TRUE(CheckBlock(tier, one).ok());
}

}  // namespace
}  // namespace millrace::store
