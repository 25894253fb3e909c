// Prefill and decode workers with a kvcache store: what is loaded is what was computed, and the store may fail at any
// time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/component/handoff_cluster.h"
#include "tests/support/oracle.h"

namespace millrace::component {
namespace {

using ::testing::IsEmpty;

HandoffClusterOptions WithStore(uint64_t seed = 1) {
  HandoffClusterOptions options;
  options.seed = seed;
  options.store = true;
  return options;
}

// Runs `generation` to its end and expects the oracle's answer; returns the tokens that came from the store.
uint32_t Expect(HandoffCluster& cluster, const request::Generation& generation) {
  const auto request = cluster.Request(generation, 2);
  EXPECT_TRUE(cluster.RunAll({request.get()}));
  if (!request->done()) return 0;
  EXPECT_TRUE(request->result().ok()) << request->result().ToString();
  EXPECT_EQ(request->generated(), support::OracleTokens(generation));
  EXPECT_THAT(request->faults(), IsEmpty());
  return request->cached_tokens();
}

TEST(HandoffStoreTest, RepeatedPromptIsLoadedUpToTheLastFullBlockBeforeItsEnd) {
  for (const uint32_t length : {1u, 63u, 64u, 65u, 127u, 128u, 129u, 192u, 193u, 320u, 500u}) {
    SCOPED_TRACE(length);
    HandoffCluster cluster(WithStore(length));
    ASSERT_TRUE(cluster.RunUntilStored());
    const request::Generation generation = MakeGeneration(length, 10, 3, length);
    EXPECT_EQ(Expect(cluster, generation), 0u);
    ASSERT_TRUE(cluster.RunUntilStored());
    EXPECT_EQ(Expect(cluster, generation), 64 * ((length - 1) / 64));
    EXPECT_EQ(cluster.prefill().Count("millrace_prefill_computed_tokens_total"), 2 * length - 64 * ((length - 1) / 64));
    EXPECT_EQ(cluster.Leaks(), "");
  }
}

TEST(HandoffStoreTest, NextTurnFindsTheBlocksThatDecodeFilled) {
  HandoffCluster cluster(WithStore());
  ASSERT_TRUE(cluster.RunUntilStored());
  const request::Generation first = MakeGeneration(100, 200);
  EXPECT_EQ(Expect(cluster, first), 0u);
  ASSERT_TRUE(cluster.RunUntilStored());
  request::Generation next = MakeGeneration(100, 20);
  const auto answer = support::OracleTokens(first);
  next.tokens.insert(next.tokens.end(), answer.begin(), answer.end());
  next.prompt_tokens = 300;
  EXPECT_EQ(Expect(cluster, next), 256u);  // the KV of the 299 tokens before the last answer's last was there
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffStoreTest, LongerPromptLoadsTheCommonPrefixOnly) {
  HandoffCluster cluster(WithStore());
  ASSERT_TRUE(cluster.RunUntilStored());
  request::Generation generation = MakeGeneration(300, 5);
  EXPECT_EQ(Expect(cluster, generation), 0u);
  ASSERT_TRUE(cluster.RunUntilStored());
  generation.tokens[200] = (generation.tokens[200] + 1) % 101;
  EXPECT_EQ(Expect(cluster, generation), 192u);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffStoreTest, RequestThatMayNotReadComputesEverything) {
  HandoffCluster cluster(WithStore());
  ASSERT_TRUE(cluster.RunUntilStored());
  request::Generation generation = MakeGeneration(300, 5);
  Expect(cluster, generation);
  ASSERT_TRUE(cluster.RunUntilStored());
  generation.cache_read = false;
  EXPECT_EQ(Expect(cluster, generation), 0u);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffStoreTest, RequestThatMayNotWriteLeavesNothing) {
  HandoffCluster cluster(WithStore());
  ASSERT_TRUE(cluster.RunUntilStored());
  request::Generation generation = MakeGeneration(300, 100);
  generation.cache_write = false;
  Expect(cluster, generation);
  ASSERT_TRUE(cluster.RunUntilStored());
  EXPECT_EQ(cluster.store().tier->Stats().blocks, 0u);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffStoreTest, TenantsDoNotShareBlocks) {
  HandoffCluster cluster(WithStore());
  ASSERT_TRUE(cluster.RunUntilStored());
  request::Generation generation = MakeGeneration(300, 5);
  generation.tenant_salt = "one";
  Expect(cluster, generation);
  ASSERT_TRUE(cluster.RunUntilStored());
  generation.tenant_salt = "two";
  EXPECT_EQ(Expect(cluster, generation), 0u);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffStoreTest, PreemptedSequenceComesBackFromTheStore) {
  HandoffClusterOptions options = WithStore();
  options.decode_backend.blocks = 8;
  options.decode.limits.expected_growth = 1;
  HandoffCluster cluster(options);
  ASSERT_TRUE(cluster.RunUntilStored());
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> all;
  for (uint64_t i = 0; i < 3; ++i) {
    requests.push_back(cluster.Request(MakeGeneration(60, 300, i, i), 200));
    all.push_back(requests.back().get());
  }
  ASSERT_TRUE(cluster.RunAll(all, Seconds(600)));
  uint32_t cached = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(requests[i]->result().ok()) << requests[i]->result().ToString();
    EXPECT_EQ(requests[i]->generated(), support::OracleTokens(MakeGeneration(60, 300, i, i)));
    cached += requests[i]->cached_tokens();
  }
  EXPECT_GT(cached, 0u);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffStoreTest, ManyRequestsWithCommonPrefixesEachEqualTheOracle) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    HandoffClusterOptions options = WithStore(seed);
    options.prefill_workers = options.decode_workers = 2;
    options.prefill_backend.blocks = options.decode_backend.blocks = 128;
    HandoffCluster cluster(options);
    std::vector<std::unique_ptr<TestRequest>> requests;
    std::vector<TestRequest*> all;
    std::vector<request::Generation> generations;
    for (uint32_t i = 0; i < 20; ++i) {
      generations.push_back(MakeGeneration(1 + (i * 53) % 400, 5 + i, i, seed));  // one prompt, cut at many lengths
      requests.push_back(cluster.Request(generations.back(), 5));
      all.push_back(requests.back().get());
    }
    ASSERT_TRUE(cluster.RunAll(all));
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(requests[i]->result().ok()) << requests[i]->result().ToString();
      EXPECT_EQ(requests[i]->generated(), support::OracleTokens(generations[i])) << "seed " << seed << " request " << i;
    }
    EXPECT_EQ(cluster.Leaks(), "");
  }
}

class HandoffStoreFaultTest : public ::testing::Test {
 protected:
  using Fault = std::function<void(HandoffCluster&, TestRequest&)>;

  static std::unique_ptr<HandoffCluster> Warm(uint64_t seed) {
    HandoffClusterOptions options = WithStore(seed);
    options.decode_workers = options.prefill_workers = 2;
    options.prefill_backend.blocks = options.decode_backend.blocks = 16;
    auto cluster = std::make_unique<HandoffCluster>(options);
    EXPECT_TRUE(cluster->RunUntilStored());
    request::Generation prefix = MakeGeneration(130, 1, 0, seed);
    Expect(*cluster, prefix);
    EXPECT_TRUE(cluster->RunUntilStored());
    return cluster;
  }

  // A request that hits two blocks, computes two and fills one more at decode meets the fault after each of its tasks.
  static void AtEveryPoint(const Fault& fault, const Fault& cure, bool cancels = false) {
    const request::Generation generation = MakeGeneration(250, 10, 0, 1);
    const auto oracle = support::OracleTokens(generation);
    const auto begin = Warm(1)->time().tasks_run();
    auto whole = Warm(1);
    EXPECT_EQ(Expect(*whole, generation), 128u);
    const uint64_t life = whole->time().tasks_run() - begin;
    for (uint64_t n = 0; n <= life; ++n) {
      SCOPED_TRACE("after task " + std::to_string(n) + " of " + std::to_string(life));
      const auto cluster = Warm(1);
      const uint64_t from = cluster->time().tasks_run();
      const auto request = cluster->Request(generation, 3);
      cluster->time().RunUntil([&] { return cluster->time().tasks_run() >= from + n; }, Seconds(1));
      fault(*cluster, *request);
      EXPECT_TRUE(cluster->RunAll({request.get()}));
      if (!request->done()) return;
      if (!cancels) {
        EXPECT_TRUE(request->result().ok()) << request->result().ToString();
        EXPECT_EQ(request->generated(), oracle);
      }
      EXPECT_THAT(request->faults(), IsEmpty());
      cluster->time().Advance(Seconds(5));
      cure(*cluster, *request);
      EXPECT_EQ(cluster->Leaks(), "");
      if (HasFailure()) return;
    }
  }
  static void Nothing(HandoffCluster&, TestRequest&) {}
};

TEST_F(HandoffStoreFaultTest, KilledStore) {
  AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.Kill(cluster.store()); }, Nothing);
}

TEST_F(HandoffStoreFaultTest, StalledStoreThatWakesUpLater) {
  AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.Stall(cluster.store()); },
               [](HandoffCluster& cluster, TestRequest&) { cluster.Resume(cluster.store()); });
}

TEST_F(HandoffStoreFaultTest, OneCorruptGet) {
  AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.fabric().CorruptNext(1); }, Nothing);
}

TEST_F(HandoffStoreFaultTest, CancelledRequest) {
  AtEveryPoint([](HandoffCluster&, TestRequest& request) { request.Cancel(); }, Nothing, true);
}

TEST_F(HandoffStoreFaultTest, KilledPrefillWorker) {
  AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.Kill(cluster.prefill(0)); }, Nothing);
}

}  // namespace
}  // namespace millrace::component
