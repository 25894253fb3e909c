// One fault at every point of a request's life. A run without fault counts its tasks; then, for each n, a run with the
// same seed meets the fault after n tasks. Whatever the point, the answer is the oracle's and nothing is leaked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/component/handoff_cluster.h"
#include "tests/support/oracle.h"

namespace millrace::component {
namespace {

using ::testing::IsEmpty;

constexpr uint32_t kPromptTokens = 150;
constexpr uint32_t kNewTokens = 8;
constexpr uint32_t kRetries = 3;

HandoffClusterOptions TwoOfEach(uint64_t seed) {
  HandoffClusterOptions options;
  options.seed = seed;
  options.prefill_workers = 2;
  options.decode_workers = 2;
  options.prefill_backend.blocks = options.decode_backend.blocks = 8;
  options.prefill.limits.first_tokens = 64;
  return options;
}

// Tasks of a request without fault.
uint64_t LifeOfARequest(const HandoffClusterOptions& options, const request::Generation& generation) {
  HandoffCluster cluster(options);
  const auto request = cluster.Request(generation);
  EXPECT_TRUE(cluster.RunAll({request.get()}));
  return cluster.time().tasks_run();
}

struct Outcome {
  uint32_t retried = 0;    // runs in which a second decode target or a second entry was needed
  uint32_t untouched = 0;  // runs that went on as if nothing had happened
};

class HandoffFaultTest : public ::testing::Test {
 protected:
  using Fault = std::function<void(HandoffCluster&, TestRequest&)>;

  // `cure` runs ten virtual seconds after the request ended, before the leak check.
  Outcome AtEveryPoint(const Fault& fault, const Fault& cure = [](HandoffCluster&, TestRequest&) {}) {
    Outcome outcome;
    for (const uint64_t seed : {1u, 2u}) {
      const request::Generation generation = MakeGeneration(kPromptTokens, kNewTokens, seed - 1, seed);
      const auto oracle = support::OracleTokens(generation);
      const uint64_t life = LifeOfARequest(TwoOfEach(seed), generation);
      for (uint64_t n = 0; n <= life; ++n) {
        SCOPED_TRACE("seed " + std::to_string(seed) + " after task " + std::to_string(n) + " of " +
                     std::to_string(life));
        HandoffCluster cluster(TwoOfEach(seed));
        const auto request = cluster.Request(generation, kRetries);
        cluster.time().RunUntil([&] { return cluster.time().tasks_run() >= n; }, Seconds(1));
        fault(cluster, *request);
        EXPECT_TRUE(cluster.RunAll({request.get()}));
        if (!request->done()) return outcome;
        EXPECT_TRUE(request->result().ok()) << request->result().ToString();
        EXPECT_EQ(request->generated(), oracle);
        EXPECT_THAT(request->faults(), IsEmpty());
        cluster.time().Advance(Seconds(10));
        cure(cluster, *request);
        EXPECT_EQ(cluster.Leaks(), "");
        (request->targets() > 1 || !request->last_failure().ok() ? outcome.retried : outcome.untouched) += 1;
        if (HasFailure()) return outcome;
      }
    }
    return outcome;
  }
};

TEST_F(HandoffFaultTest, KilledDecodeWorker) {
  const Outcome outcome = AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.Kill(cluster.decode(1)); });
  EXPECT_GT(outcome.retried, 20u);
}

TEST_F(HandoffFaultTest, KilledDecodeWorkerThatTheBalancerStillRoutesTo) {
  const Outcome outcome = AtEveryPoint([](HandoffCluster& cluster, TestRequest&) {
    cluster.Kill(cluster.decode(1));
    cluster.balancer().workers[1].alive = true;
  });
  EXPECT_GT(outcome.retried, 20u);
}

TEST_F(HandoffFaultTest, KilledPrefillWorker) {
  const Outcome outcome = AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.Kill(cluster.prefill(0)); });
  EXPECT_GT(outcome.retried, 20u);
}

TEST_F(HandoffFaultTest, StalledDecodeWorkerThatWakesUpLater) {
  const Outcome outcome =
      AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.Stall(cluster.decode(1)); },
                   [](HandoffCluster& cluster, TestRequest&) { cluster.Resume(cluster.decode(1)); });
  EXPECT_GT(outcome.retried, 20u);
}

TEST_F(HandoffFaultTest, StalledPrefillWorkerThatWakesUpLater) {
  const Outcome outcome =
      AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.Stall(cluster.prefill(0)); },
                   [](HandoffCluster& cluster, TestRequest&) { cluster.Resume(cluster.prefill(0)); });
  EXPECT_GT(outcome.retried, 20u);
}

TEST_F(HandoffFaultTest, ConnectionBetweenPrefillAndDecodeThatGoesDead) {
  const Outcome outcome = AtEveryPoint(
      [](HandoffCluster& cluster, TestRequest&) { cluster.network().StallBetween("prefill-0", "decode-1"); },
      [](HandoffCluster& cluster, TestRequest&) { cluster.network().ResumeBetween("prefill-0", "decode-1"); });
  EXPECT_GT(outcome.retried, 3u);
  EXPECT_GT(outcome.untouched, 5u);
}

TEST_F(HandoffFaultTest, KilledBalancerReplicaIsNotNoticed) {
  for (const char* address : {"balancer-0", "balancer-1"}) {
    const Outcome outcome =
        AtEveryPoint([&](HandoffCluster& cluster, TestRequest&) { cluster.network().Kill(address); });
    EXPECT_EQ(outcome.retried, 0u);
  }
}

TEST_F(HandoffFaultTest, StalledBalancerReplicaIsNotNoticed) {
  const Outcome outcome =
      AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.network().Stall("balancer-0"); });
  EXPECT_EQ(outcome.retried, 0u);
}

TEST_F(HandoffFaultTest, GetsThatHangWhileTheControlPlaneLives) {
  AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.fabric().Hold("prefill-0"); },
               [](HandoffCluster& cluster, TestRequest&) { cluster.fabric().Release("prefill-0"); });
}

TEST_F(HandoffFaultTest, OneCorruptGet) {
  const Outcome outcome = AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.fabric().CorruptNext(1); });
  EXPECT_GT(outcome.retried, 5u);
}

TEST_F(HandoffFaultTest, OneFailedGet) {
  const Outcome outcome = AtEveryPoint([](HandoffCluster& cluster, TestRequest&) { cluster.fabric().FailNext(1); });
  EXPECT_GT(outcome.retried, 5u);
}

TEST_F(HandoffFaultTest, EngineErrorInOneStep) {
  AtEveryPoint([](HandoffCluster& cluster, TestRequest&) {
    for (WorkerProcess* process :
         {static_cast<WorkerProcess*>(&cluster.prefill(0)), static_cast<WorkerProcess*>(&cluster.decode(1))}) {
      auto failed = std::make_shared<bool>(false);
      process->backend->on_step = [failed](auto) {
        return std::exchange(*failed, true) ? OkStatus() : Internal("told to fail");
      };
    }
  });
}

TEST_F(HandoffFaultTest, CancelledRequestFreesEverythingAtOnce) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const request::Generation generation = MakeGeneration(kPromptTokens, kNewTokens, 0, seed);
    const uint64_t life = LifeOfARequest(TwoOfEach(seed), generation);
    for (uint64_t n = 0; n <= life; ++n) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " after task " + std::to_string(n));
      HandoffCluster cluster(TwoOfEach(seed));
      const auto request = cluster.Request(generation);
      cluster.time().RunUntil([&] { return cluster.time().tasks_run() >= n; }, Seconds(1));
      request->Cancel();
      cluster.time().RunReady();  // no time passes
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(cluster.prefill(i).Metric("millrace_prefill_held_blocks"), 0);
        EXPECT_EQ(cluster.prefill(i).Metric("millrace_prefill_sessions"), 0);
      }
      // A hand-over that was complete when its gateway went leaves a session that nobody came for, if the gateway never
      // attached; anything else is gone.
      if (request->targets() > 0) {
        for (size_t i = 0; i < 2; ++i) EXPECT_EQ(cluster.decode(i).Metric("millrace_decode_held_blocks"), 0);
      }
      EXPECT_EQ(cluster.Leaks(), "");
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST_F(HandoffFaultTest, CorruptKvIsCountedAndNeverUsed) {
  HandoffCluster cluster(TwoOfEach(1));
  const request::Generation generation = MakeGeneration(kPromptTokens, kNewTokens);
  cluster.fabric().CorruptNext(1);
  const auto request = cluster.Request(generation);
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->generated(), support::OracleTokens(generation));
  EXPECT_EQ(request->targets(), 2u);
  EXPECT_EQ(cluster.decode(1).Count("millrace_decode_ended_total", {{"cause", "kv_corrupt"}}), 1);
  EXPECT_EQ(cluster.prefill(0).Count("millrace_prefill_handoff_failures_total", {{"reason", "kv_corrupt"}}), 1);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST_F(HandoffFaultTest, KvThatIsAlwaysCorruptEndsTheRequestWithThatError) {
  HandoffCluster cluster(TwoOfEach(1));
  cluster.fabric().CorruptNext(1000);
  const auto request = cluster.Request(MakeGeneration(kPromptTokens, kNewTokens));
  ASSERT_TRUE(cluster.RunAll({request.get()}));
  EXPECT_EQ(request->result().reason(), Reason::kKvCorrupt);
  EXPECT_EQ(cluster.Leaks(), "");
}

// The pages of a hand-over whose peer stopped belong to nobody until its link is gone, since bytes may still come.
TEST_F(HandoffFaultTest, PagesAreNotReusedWhileAGetMayStillWriteThem) {
  HandoffCluster cluster(TwoOfEach(1));
  cluster.fabric().Hold("prefill-0");
  const auto request = cluster.Request(MakeGeneration(kPromptTokens, kNewTokens));
  ASSERT_TRUE(cluster.time().RunUntil([&] { return cluster.fabric().pending() > 0; }, Seconds(1)));
  request->Cancel();
  cluster.decode(1).blocking().set_stopped(true);  // the end of the link takes its time
  cluster.time().Advance(Seconds(5));
  EXPECT_EQ(cluster.decode(1).Metric("millrace_decode_held_blocks"), 3);
  EXPECT_GT(cluster.fabric().pending(), 0u);
  cluster.decode(1).blocking().set_stopped(false);
  cluster.time().Advance(Seconds(1));
  EXPECT_EQ(cluster.fabric().pending(), 0u);
  EXPECT_EQ(cluster.decode(1).Metric("millrace_decode_held_blocks"), 0);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST_F(HandoffFaultTest, PrefillWorkerThatFallsSilentLosesItsReservationAtTheSilenceDeadline) {
  HandoffCluster cluster(TwoOfEach(1));
  cluster.prefill(0).checksum().set_stopped(true);  // nothing is announced: the reservation waits
  const auto request = cluster.Request(MakeGeneration(kPromptTokens, kNewTokens));
  ASSERT_TRUE(cluster.time().RunUntil([&] { return cluster.decode(1).Metric("millrace_decode_reservations") == 1; },
                                      Seconds(1)));
  cluster.network().StallBetween("prefill-0", "decode-1");
  cluster.time().Advance(Milliseconds(1200));
  EXPECT_EQ(cluster.decode(1).Metric("millrace_decode_held_blocks"), 3);
  cluster.time().Advance(Milliseconds(800));
  EXPECT_EQ(cluster.decode(1).Metric("millrace_decode_held_blocks"), 0);
  EXPECT_EQ(cluster.decode(1).Count("millrace_decode_ended_total", {{"cause", "peer_lost"}}), 1);
  request->Cancel();
  cluster.network().ResumeBetween("prefill-0", "decode-1");
  cluster.prefill(0).checksum().set_stopped(false);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST_F(HandoffFaultTest, BalancerThatIsSilentIsLeftAfterTheSilenceDeadline) {
  HandoffCluster cluster(TwoOfEach(1));
  cluster.balancer().mode = TestBalancer::Mode::kWait;
  const auto request = cluster.Request(MakeGeneration(kPromptTokens, kNewTokens));
  ASSERT_TRUE(cluster.RunAll({request.get()}, Seconds(5)));
  EXPECT_EQ(request->result().reason(), Reason::kNoInstance);
  EXPECT_EQ(cluster.Leaks(), "");
}

TEST_F(HandoffFaultTest, BusyDecodeWorkerWithoutProgressIsLeft) {
  HandoffCluster cluster(TwoOfEach(1));
  const request::Generation generation = MakeGeneration(kPromptTokens, kNewTokens);
  const auto request = cluster.Request(generation, kRetries);
  cluster.decode(1).engine().set_stopped(true);
  ASSERT_TRUE(cluster.RunAll({request.get()}, Seconds(20)));
  EXPECT_EQ(request->generated(), support::OracleTokens(generation));
  cluster.decode(1).engine().set_stopped(false);
  EXPECT_EQ(cluster.Leaks(), "");
}

}  // namespace
}  // namespace millrace::component
