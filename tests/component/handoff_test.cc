#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/component/handoff_cluster.h"
#include "tests/support/oracle.h"

namespace millrace::component {
namespace {

using ::testing::IsEmpty;

TEST(HandoffTest, DisaggregatedOutputEqualsTheOracleForManyPromptLengths) {
  for (const uint32_t length : {1u, 2u, 63u, 64u, 65u, 127u, 128u, 129u, 191u, 192u, 193u, 300u, 447u, 500u}) {
    for (const uint64_t sampling_seed : {0u, 77u}) {
      HandoffClusterOptions options;
      options.seed = length + sampling_seed;
      HandoffCluster cluster(options);
      const request::Generation generation = MakeGeneration(length, 70, sampling_seed, length);
      const auto request = cluster.Request(generation);
      ASSERT_TRUE(cluster.RunAll({request.get()})) << length;
      ASSERT_TRUE(request->result().ok()) << request->result().ToString();
      EXPECT_EQ(request->generated(), support::OracleTokens(generation)) << length << " seed " << sampling_seed;
      EXPECT_EQ(request->finish(), request::FinishReason::kLength);
      EXPECT_THAT(request->faults(), IsEmpty());
      EXPECT_EQ(cluster.Leaks(), "");
      EXPECT_EQ(cluster.decode().Count("millrace_decode_pulled_bytes_total"),
                length * cluster.decode().backend->layout().row_bytes() * 3);
      EXPECT_EQ(cluster.prefill().Count("millrace_prefill_computed_tokens_total"), length);
    }
  }
}

TEST(HandoffTest, ManyRequestsAtOnceEachEqualTheOracle) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    HandoffClusterOptions options;
    options.seed = seed;
    options.prefill_workers = 2;
    options.decode_workers = 2;
    options.prefill_backend.blocks = options.decode_backend.blocks = 128;
    HandoffCluster cluster(options);
    std::vector<std::unique_ptr<TestRequest>> requests;
    std::vector<TestRequest*> all;
    std::vector<request::Generation> generations;
    for (uint32_t i = 0; i < 20; ++i) {
      generations.push_back(MakeGeneration(1 + (i * 37) % 400, 5 + i, i % 2 == 0 ? 0 : i, seed * 100 + i));
      requests.push_back(cluster.Request(generations.back(), 5));
      all.push_back(requests.back().get());
    }
    ASSERT_TRUE(cluster.RunAll(all));
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(requests[i]->result().ok()) << requests[i]->result().ToString();
      EXPECT_EQ(requests[i]->generated(), support::OracleTokens(generations[i])) << "seed " << seed << " request " << i;
      EXPECT_THAT(requests[i]->faults(), IsEmpty());
    }
    EXPECT_EQ(cluster.Leaks(), "");
  }
}

TEST(HandoffTest, ResumedRequestContinuesWithTheTokensItWouldHaveHad) {
  HandoffCluster cluster({});
  request::Generation generation = MakeGeneration(100, 40, 5);
  const auto oracle = support::OracleTokens(generation);
  generation.tokens.insert(generation.tokens.end(), oracle.begin(), oracle.begin() + 30);
  const auto request = cluster.Request(generation);
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->generated(), oracle);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, OneTokenAnswerNeedsNoDecodeWorker) {
  HandoffCluster cluster({});
  cluster.network().Kill("balancer-0");
  cluster.network().Kill("balancer-1");
  const request::Generation generation = MakeGeneration(100, 1);
  const auto request = cluster.Request(generation);
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->generated(), support::OracleTokens(generation));
  EXPECT_EQ(request->targets(), 0u);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, StopIdAsFirstTokenCancelsTheReservation) {
  HandoffCluster cluster({});
  request::Generation generation = MakeGeneration(100, 50);
  generation.stop_ids = {support::OracleTokens(generation).front()};
  const auto request = cluster.Request(generation);
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->generated().size(), 1u);
  EXPECT_EQ(request->finish(), request::FinishReason::kStop);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, StopIdLaterEndsTheStreamAtIt) {
  HandoffCluster cluster({});
  request::Generation generation = MakeGeneration(100, 50);
  generation.stop_ids = {support::OracleTokens(generation)[20]};
  const auto oracle = support::OracleTokens(generation);
  const auto request = cluster.Request(generation);
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->generated(), oracle);
  EXPECT_EQ(request->finish(), request::FinishReason::kStop);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, LongPromptIsComputedInChunksAndAnnouncedBeforeItsEnd) {
  HandoffClusterOptions options;
  options.prefill.limits.first_tokens = 128;
  HandoffCluster cluster(options);
  const request::Generation generation = MakeGeneration(500, 3);
  const auto request = cluster.Request(generation);
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->generated(), support::OracleTokens(generation));
  EXPECT_EQ(cluster.prefill().backend->steps(), 4u);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, OtherIncarnationIsRefusedAsALostPeer) {
  HandoffCluster cluster({});
  cluster.balancer().workers[0].incarnation = 999;
  const auto request = cluster.Request(MakeGeneration(10, 5));
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->result().reason(), Reason::kPeerLost);
  EXPECT_EQ(cluster.prefill().Count("millrace_prefill_handoff_failures_total", {{"reason", "peer_lost"}}), 2);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, OtherLayoutIsRefusedAsAShapeMismatch) {
  HandoffClusterOptions options;
  options.decode_backend.numerics_class = "other";
  HandoffCluster cluster(options);
  const auto request = cluster.Request(MakeGeneration(10, 5));
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->result().reason(), Reason::kShapeMismatch);
  EXPECT_EQ(cluster.prefill().Count("millrace_prefill_handoff_failures_total", {{"reason", "shape_mismatch"}}), 2);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, FullPrefillQueueShedsWithTimeToComeBack) {
  HandoffClusterOptions options;
  options.prefill.queue.most_requests = 2;
  HandoffCluster cluster(options);
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> all;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(cluster.Request(MakeGeneration(200, 3, 0, i)));
    all.push_back(requests.back().get());
  }
  ASSERT_TRUE(cluster.RunAll(all));
  int shed = 0;
  for (const auto& request : requests) {
    if (request->result().ok()) continue;
    ++shed;
    EXPECT_EQ(request->result().reason(), Reason::kOverloaded);
    EXPECT_TRUE(request->result().retry_after_ms().has_value());
    EXPECT_FALSE(request->accepted());
  }
  EXPECT_GT(shed, 0);
  EXPECT_LT(shed, 6);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, PromptThatNeverFitsIsRefusedAtOnce) {
  HandoffClusterOptions options;
  options.prefill_backend.blocks = 4;
  HandoffCluster cluster(options);
  const auto request = cluster.Request(MakeGeneration(250, 7));
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->result().reason(), Reason::kContextLengthExceeded);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, FullDecodeWorkerRefusesAndAnotherTakesTheRequest) {
  HandoffClusterOptions options;
  options.decode_workers = 2;
  options.decode.limits.most_sequences = 1;
  HandoffCluster cluster(options);
  const auto one = cluster.Request(MakeGeneration(100, 300, 0, 1));
  ASSERT_TRUE(cluster.time().RunUntil([&] { return one->generated().size() > 5; }, Seconds(10)));
  cluster.balancer().picks = 0;
  const auto two = cluster.Request(MakeGeneration(100, 30, 0, 2));
  ASSERT_TRUE(cluster.RunAll({one.get(), two.get()}));
  EXPECT_TRUE(two->result().ok()) << two->result().ToString();
  EXPECT_EQ(two->generated(), support::OracleTokens(MakeGeneration(100, 30, 0, 2)));
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, PromptAdmittedAtTheEndOfAStepDoesNotDisturbTheOthersOfThatStep) {
  HandoffClusterOptions options;
  options.prefill_backend.blocks = 6;
  HandoffCluster cluster(options);
  const std::vector<request::Generation> generations = {MakeGeneration(60, 1, 0, 1), MakeGeneration(300, 5, 0, 2),
                                                        MakeGeneration(60, 5, 0, 3)};
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> all;
  cluster.prefill().engine().set_stopped(true);
  for (const request::Generation& generation : generations) {
    requests.push_back(cluster.Request(generation));
    all.push_back(requests.back().get());
    cluster.time().RunReady();
  }
  EXPECT_EQ(cluster.prefill().Metric("millrace_prefill_waiting_requests"), 1);  // the third waits for a block
  cluster.prefill().engine().set_stopped(false);
  ASSERT_TRUE(cluster.RunAll(all));
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(all[i]->result().ok()) << all[i]->result().ToString();
    EXPECT_EQ(all[i]->generated(), support::OracleTokens(generations[i])) << i;
  }
  EXPECT_EQ(cluster.prefill().Count("millrace_prefill_computed_tokens_total"), 420);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, PreemptedSequencesComeBackAndLoseNothing) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    HandoffClusterOptions options;
    options.seed = seed;
    options.decode_backend.blocks = 8;
    options.decode.limits.expected_growth = 1;  // admits far too much
    HandoffCluster cluster(options);
    std::vector<std::unique_ptr<TestRequest>> requests;
    std::vector<TestRequest*> all;
    uint32_t evictions = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      requests.push_back(cluster.Request(MakeGeneration(60, 300, i, i), 200));
      all.push_back(requests.back().get());
    }
    ASSERT_TRUE(cluster.RunAll(all, Seconds(600)));
    for (uint64_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(requests[i]->result().ok()) << requests[i]->result().ToString();
      EXPECT_EQ(requests[i]->generated(), support::OracleTokens(MakeGeneration(60, 300, i, i)));
      EXPECT_THAT(requests[i]->faults(), IsEmpty());
      evictions += requests[i]->evictions();
    }
    EXPECT_GT(evictions, 0u);
    EXPECT_EQ(cluster.Leaks(), "");
  }
}

TEST(HandoffTest, SessionThatNoGatewayComesForIsFreed) {
  HandoffCluster cluster({});
  cluster.network().StallBetween("gateway", "decode-0");
  const auto request = cluster.Request(MakeGeneration(100, 1500));
  ASSERT_TRUE(cluster.time().RunUntil([&] { return request->targets() == 1; }, Seconds(5)));
  cluster.time().RunUntil([&] { return cluster.decode().Metric("millrace_decode_held_blocks") == 0; }, Seconds(1));
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST(HandoffTest, DrainingWorkersFinishWhatTheyHaveAndTakeNothingNew) {
  HandoffCluster cluster({});
  const request::Generation generation = MakeGeneration(200, 30);
  const auto before = cluster.Request(generation);
  ASSERT_TRUE(cluster.time().RunUntil([&] { return before->targets() == 1; }, Seconds(5)));
  cluster.prefill().runtime->Drain();
  cluster.decode().runtime->Drain();
  const auto after = cluster.Request(generation);
  ASSERT_TRUE(cluster.RunAll({before.get(), after.get()}));
  EXPECT_EQ(before->generated(), support::OracleTokens(generation));
  EXPECT_EQ(after->result().reason(), Reason::kDraining);
  EXPECT_EQ(cluster.Leaks(), "");
}

}  // namespace
}  // namespace millrace::component
