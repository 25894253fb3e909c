#include "common/cluster/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::cluster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const TimePoint kStart{Seconds(100)};

InstanceInfo Info(const std::string& id, Incarnation incarnation, const std::string& digest = "digest-a") {
  return {id, incarnation, Role::kPrefill, "127.0.0.1:1", {"model", digest, 2048}, 0, 100};
}

Load Ready(uint64_t sequence) {
  Load load;
  load.sequence = sequence;
  load.ready = true;
  return load;
}

std::vector<Incarnation> Targets(const ClusterView& view) {
  std::vector<Incarnation> targets;
  for (const Instance& instance : view.instances) targets.push_back(instance.info.incarnation);
  return targets;
}

class PoolTest : public testing::Test {
 protected:
  void Join(const std::string& id, Incarnation incarnation, const std::string& digest = "digest-a") {
    ASSERT_TRUE(pool_.Hello(Info(id, incarnation, digest), kStart).ok());
    ASSERT_TRUE(pool_.Report(incarnation, Ready(1), kStart));
  }
  std::vector<Incarnation> Candidates(const ModelSelector& selector = {}, std::vector<Incarnation> excluded = {}) {
    return Targets(pool_.Candidates(selector, excluded));
  }
  Pool pool_{Role::kPrefill, PoolOptions{}};
};

TEST_F(PoolTest, NotACandidateBeforeItsFirstReadyReport) {
  ASSERT_TRUE(pool_.Hello(Info("a", 1), kStart).ok());
  EXPECT_THAT(Candidates(), IsEmpty());
  EXPECT_THAT(pool_.Live(), ElementsAre(1));
  EXPECT_TRUE(pool_.Report(1, Ready(0), kStart));
  EXPECT_THAT(Candidates(), ElementsAre(1));
}

TEST_F(PoolTest, CandidatesAreSortedByIdAndSkipDrainingAndNotReady) {
  Join("c", 3);
  Join("a", 1);
  Join("b", 2);
  EXPECT_THAT(Candidates(), ElementsAre(1, 2, 3));
  Load draining = Ready(2);
  draining.draining = true;
  EXPECT_TRUE(pool_.Report(1, draining, kStart));
  Load not_ready = Ready(2);
  not_ready.ready = false;
  EXPECT_TRUE(pool_.Report(3, not_ready, kStart));
  EXPECT_THAT(Candidates(), ElementsAre(2));
}

TEST_F(PoolTest, LayoutDigestsAreNeverMixed) {
  Join("a", 1, "digest-a");
  Join("b", 2, "digest-b");
  EXPECT_THAT(Candidates({"", "digest-b"}), ElementsAre(2));
  EXPECT_THAT(Candidates({"model", "digest-a"}), ElementsAre(1));
  EXPECT_THAT(Candidates({"model", ""}), ElementsAre(1, 2));
  EXPECT_THAT(Candidates({"other", ""}), IsEmpty());
  ASSERT_EQ(pool_.Models().size(), 2u);
  EXPECT_EQ(pool_.Models()[0].model.layout_digest, "digest-a");
  EXPECT_EQ(pool_.Models()[1].ready, 1u);
}

TEST_F(PoolTest, ExcludedAreHonouredUnlessNothingElseIsLeft) {
  Join("a", 1);
  Join("b", 2);
  EXPECT_THAT(Candidates({}, {1}), ElementsAre(2));
  EXPECT_THAT(Candidates({}, {1, 2}), ElementsAre(1, 2));
}

TEST_F(PoolTest, ANewIncarnationReplacesTheOldOneAndItsLateReportsAreIgnored) {
  Join("a", 1);
  Join("a", 7);
  EXPECT_THAT(Candidates(), ElementsAre(7));
  EXPECT_FALSE(pool_.Report(1, Ready(9), kStart));
  EXPECT_EQ(pool_.Hello(Info("a", 1), kStart).code(), Code::kAlreadyExists);
  pool_.Remove(1, kStart);
  EXPECT_THAT(Candidates(), ElementsAre(7));
}

TEST_F(PoolTest, AReplacedIncarnationMayReturnOnceItsSuccessorIsGone) {
  Join("a", 1);
  Join("a", 7);
  pool_.Remove(7, kStart);
  EXPECT_TRUE(pool_.Hello(Info("a", 1), kStart).ok());
}

TEST_F(PoolTest, SilenceIsDeathExactlyAtTheDeadline) {
  Join("a", 1);
  EXPECT_THAT(pool_.Expire(kStart + Milliseconds(1499)), IsEmpty());
  const auto deaths = pool_.Expire(kStart + Milliseconds(1500));
  ASSERT_EQ(deaths.size(), 1u);
  EXPECT_EQ(deaths[0].cause, DeathCause::kSilent);
  EXPECT_THAT(pool_.Live(), IsEmpty());
}

TEST_F(PoolTest, AReportOutOfOrderOnlyProvesLife) {
  Join("a", 1);
  Load newer = Ready(5);
  newer.queued_tokens = 50;
  EXPECT_TRUE(pool_.Report(1, newer, kStart));
  EXPECT_TRUE(pool_.Report(1, Ready(4), kStart + Seconds(1)));
  EXPECT_EQ(pool_.Instances()[0].load.queued_tokens, 50u);
  EXPECT_THAT(pool_.Expire(kStart + Seconds(2)), IsEmpty());
}

TEST_F(PoolTest, BusyWithoutProgressIsDeathAndIdleIsNot) {
  Join("a", 1);
  TimePoint now = kStart;
  for (uint64_t i = 2; i < 50; ++i) {  // idle for 12 s
    now += Milliseconds(250);
    ASSERT_TRUE(pool_.Report(1, Ready(i), now));
  }
  EXPECT_THAT(pool_.Expire(now), IsEmpty());
  const TimePoint busy_since = now + Milliseconds(250);
  for (uint64_t i = 50; i < 70; ++i) {  // busy for 4.75 s
    now += Milliseconds(250);
    Load load = Ready(i);
    load.busy = true;
    load.progress = 8;
    ASSERT_TRUE(pool_.Report(1, load, now));
  }
  EXPECT_THAT(pool_.Expire(now), IsEmpty());
  const auto deaths = pool_.Expire(busy_since + Seconds(5));
  ASSERT_EQ(deaths.size(), 1u);
  EXPECT_EQ(deaths[0].cause, DeathCause::kNoProgress);
}

TEST_F(PoolTest, AStuckInstanceThatSaysHelloAgainIsNoCandidateUntilItMoves) {
  Join("a", 1);
  Load load = Ready(2);
  load.busy = true;
  load.progress = 8;
  ASSERT_TRUE(pool_.Report(1, load, kStart));
  load.sequence = 3;
  ASSERT_TRUE(pool_.Report(1, load, kStart + Seconds(5)));
  ASSERT_EQ(pool_.Expire(kStart + Seconds(5)).size(), 1u);
  ASSERT_TRUE(pool_.Hello(Info("a", 1), kStart + Seconds(5)).ok());
  for (int i = 0; i < 40; ++i) {
    ++load.sequence;
    ASSERT_TRUE(pool_.Report(1, load, kStart + Seconds(5 + i)));
    EXPECT_THAT(Candidates(), IsEmpty());
    EXPECT_THAT(pool_.Expire(kStart + Seconds(5 + i)), IsEmpty());
  }
  ++load.sequence;
  ++load.progress;
  ASSERT_TRUE(pool_.Report(1, load, kStart + Seconds(45)));
  EXPECT_THAT(Candidates(), ElementsAre(1));
}

TEST_F(PoolTest, AStallOfTheObserverKillsNobody) {
  Join("a", 1);
  const TimePoint late = kStart + Seconds(60);
  pool_.ForgiveStall(Seconds(60));
  EXPECT_THAT(pool_.Expire(late), IsEmpty());
  EXPECT_EQ(pool_.Expire(late + Milliseconds(1500)).size(), 1u);
}

TEST_F(PoolTest, PicksCountUntilAReportIsYoungEnoughToShowThem) {
  Join("a", 1);
  pool_.AddPick(1, 100, kStart);
  pool_.AddPick(1, 30, kStart + Milliseconds(100));
  EXPECT_EQ(pool_.Instances()[0].pending_tokens, 130u);
  ASSERT_TRUE(pool_.Report(1, Ready(2), kStart + Milliseconds(149)));
  EXPECT_EQ(pool_.Instances()[0].pending_requests, 2u);
  ASSERT_TRUE(pool_.Report(1, Ready(3), kStart + Milliseconds(150)));
  EXPECT_EQ(pool_.Instances()[0].pending_requests, 1u);
  EXPECT_EQ(pool_.Instances()[0].pending_tokens, 30u);
}

TEST_F(PoolTest, AResumedProcessSaysHelloAgainWithoutItsOldPicks) {
  Join("a", 1);
  pool_.AddPick(1, 100, kStart);
  ASSERT_EQ(pool_.Expire(kStart + Seconds(2)).size(), 1u);
  ASSERT_TRUE(pool_.Hello(Info("a", 1), kStart + Seconds(3)).ok());
  EXPECT_THAT(Candidates(), IsEmpty());
  ASSERT_TRUE(pool_.Report(1, Ready(20), kStart + Seconds(3)));
  EXPECT_THAT(Candidates(), ElementsAre(1));
  EXPECT_EQ(pool_.Instances()[0].pending_requests, 0u);
}

TEST_F(PoolTest, RemembersWhenAModelLostItsLastInstance) {
  Join("a", 1);
  Join("b", 2);
  EXPECT_EQ(pool_.LostAt({"model", ""}), nullptr);
  pool_.Remove(1, kStart);
  EXPECT_EQ(pool_.LostAt({"model", ""}), nullptr);
  pool_.Remove(2, kStart + Seconds(1));
  ASSERT_NE(pool_.LostAt({"model", ""}), nullptr);
  EXPECT_EQ(*pool_.LostAt({"model", ""}), kStart + Seconds(1));
  EXPECT_EQ(pool_.LostAt({"other", ""}), nullptr);
  Join("a", 3);
  EXPECT_EQ(pool_.LostAt({"model", ""}), nullptr);
}

TEST_F(PoolTest, RefusesAHelloThatIsIncompleteOrOfAnotherRole) {
  InstanceInfo decode = Info("a", 1);
  decode.role = Role::kDecode;
  EXPECT_EQ(pool_.Hello(decode, kStart).code(), Code::kInvalidArgument);
  EXPECT_EQ(pool_.Hello(Info("", 1), kStart).code(), Code::kInvalidArgument);
  EXPECT_EQ(pool_.Hello(Info("a", 0), kStart).code(), Code::kInvalidArgument);
  InstanceInfo unreachable = Info("a", 1);
  unreachable.address.clear();
  EXPECT_EQ(pool_.Hello(unreachable, kStart).code(), Code::kInvalidArgument);
  EXPECT_EQ(pool_.size(), 0u);
}

TEST_F(PoolTest, ThePoolPromisesTheSmallestContextOfALayout) {
  InstanceInfo small = Info("a", 1);
  small.model.context_tokens = 512;
  ASSERT_TRUE(pool_.Hello(small, kStart).ok());
  Join("b", 2);
  ASSERT_EQ(pool_.Models().size(), 1u);
  EXPECT_EQ(pool_.Models()[0].model.context_tokens, 512u);
}

}  // namespace
}  // namespace millrace::cluster
