#include "common/policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/policy/cost.h"

namespace millrace::policy {
namespace {

using cluster::ClusterView;
using cluster::Instance;
using cluster::Role;
using testing::ElementsAre;
using testing::HasSubstr;

Instance Make(Role role, const std::string& id, cluster::Incarnation incarnation) {
  Instance instance;
  instance.info.instance_id = id;
  instance.info.incarnation = incarnation;
  instance.info.role = role;
  instance.info.total_blocks = 100;
  instance.info.max_sequences = 4;
  instance.load.ready = true;
  instance.load.free_blocks = 100;
  return instance;
}

cluster::Incarnation Target(const Decision& decision) {
  const Route* route = std::get_if<Route>(&decision);
  return route == nullptr ? 0 : route->target;
}

std::vector<cluster::Incarnation> PickMany(Policy& policy, const ClusterView& view, int count) {
  Rng rng(1);
  std::vector<cluster::Incarnation> targets;
  for (int i = 0; i < count; ++i) targets.push_back(Target(policy.Pick(view, {10, 10}, TimePoint{}, rng)));
  return targets;
}

std::unique_ptr<Policy> New(std::string_view name, PolicyOptions options = {}) {
  auto policy = MakePolicy(name, options);
  EXPECT_TRUE(policy.ok());
  return *std::move(policy);
}

TEST(CostTest, PrefillSecondsIsUnfinishedTokensOverRate) {
  Instance instance = Make(Role::kPrefill, "a", 1);
  instance.load.queued_tokens = 300;
  instance.pending_tokens = 100;
  instance.load.tokens_per_second = 50;
  EXPECT_DOUBLE_EQ(PrefillSeconds(instance, {100, 0}, 1.0), 10.0);
  instance.load.tokens_per_second = 0;
  EXPECT_DOUBLE_EQ(PrefillSeconds(instance, {100, 0}, 25.0), 20.0);
}

TEST(CostTest, DecodeStepCostAddsSequencesAndKv) {
  Instance instance = Make(Role::kDecode, "a", 1);
  instance.load.running = 3;
  instance.load.kv_tokens = 2000;
  instance.pending_requests = 1;
  instance.pending_tokens = 900;
  EXPECT_DOUBLE_EQ(DecodeStepCost(instance, {100, 0}, 1000.0), 5.0 + 3.0);
}

TEST(CostTest, ReferenceRateIsTheMeanOfWhatWasMeasured) {
  ClusterView view{1, {Make(Role::kPrefill, "a", 1), Make(Role::kPrefill, "b", 2), Make(Role::kPrefill, "c", 3)}};
  EXPECT_DOUBLE_EQ(ReferenceRate(view), 1.0);
  view.instances[0].load.tokens_per_second = 100;
  view.instances[2].load.tokens_per_second = 300;
  EXPECT_DOUBLE_EQ(ReferenceRate(view), 200.0);
}

TEST(RoundRobinTest, TakesTurnsById) {
  const auto policy = New("round_robin");
  const ClusterView view{1, {Make(Role::kPrefill, "a", 5), Make(Role::kPrefill, "b", 2), Make(Role::kPrefill, "c", 9)}};
  EXPECT_THAT(PickMany(*policy, view, 5), ElementsAre(5, 2, 9, 5, 2));
}

TEST(RoundRobinTest, TheTurnSurvivesAnInstanceThatLeft) {
  const auto policy = New("round_robin");
  ClusterView view{1, {Make(Role::kPrefill, "a", 1), Make(Role::kPrefill, "b", 2), Make(Role::kPrefill, "c", 3)}};
  EXPECT_THAT(PickMany(*policy, view, 2), ElementsAre(1, 2));
  view.instances.erase(view.instances.begin() + 1);
  EXPECT_THAT(PickMany(*policy, view, 2), ElementsAre(3, 1));
}

TEST(LeastLoadedTest, PrefillTakesTheShortestPredictedQueue) {
  const auto policy = New("least_loaded");
  ClusterView view{1, {Make(Role::kPrefill, "a", 1), Make(Role::kPrefill, "b", 2)}};
  view.instances[0].load.queued_tokens = 1000;  // 1000 tokens at 1000/s beat 500 at 100/s
  view.instances[0].load.tokens_per_second = 1000;
  view.instances[1].load.queued_tokens = 500;
  view.instances[1].load.tokens_per_second = 100;
  EXPECT_THAT(PickMany(*policy, view, 1), ElementsAre(1));
}

TEST(LeastLoadedTest, DecodeWeighsSequencesAndKv) {
  const auto policy = New("least_loaded");
  ClusterView view{1, {Make(Role::kDecode, "a", 1), Make(Role::kDecode, "b", 2)}};
  view.instances[0].load.running = 2;
  view.instances[1].load.running = 1;
  EXPECT_THAT(PickMany(*policy, view, 1), ElementsAre(2));
  view.instances[1].load.kv_tokens = 6000;
  EXPECT_THAT(PickMany(*policy, view, 1), ElementsAre(1));
}

TEST(LeastLoadedTest, EqualInstancesShareTheLoad) {
  const auto policy = New("least_loaded");
  const ClusterView view{1, {Make(Role::kDecode, "a", 1), Make(Role::kDecode, "b", 2)}};
  const auto targets = PickMany(*policy, view, 200);
  const auto first = std::count(targets.begin(), targets.end(), 1u);
  EXPECT_GT(first, 60);
  EXPECT_LT(first, 140);
}

TEST(RoomTest, DecodeCountsSequencesBlocksAndPendingPicks) {
  Instance instance = Make(Role::kDecode, "a", 1);
  EXPECT_EQ(RoomFor(instance, {64 * 99, 0}, {}), Room::kNow);
  EXPECT_EQ(RoomFor(instance, {64 * 100, 0}, {}), Room::kNever);
  instance.load.running = 3;
  EXPECT_EQ(RoomFor(instance, {64, 0}, {}), Room::kNow);
  instance.pending_requests = 1;
  EXPECT_EQ(RoomFor(instance, {64, 0}, {}), Room::kLater);
  instance.load.running = 0;
  instance.pending_tokens = 64 * 50;
  EXPECT_EQ(RoomFor(instance, {64 * 48, 0}, {}), Room::kNow);  // 50 + 1 promised, 49 needed
  EXPECT_EQ(RoomFor(instance, {64 * 49, 0}, {}), Room::kLater);
}

TEST(RoomTest, PrefillCountsItsQueue) {
  PolicyOptions options;
  options.prefill_queue_limit = 3;
  Instance instance = Make(Role::kPrefill, "a", 1);
  instance.load.queued_requests = 2;
  EXPECT_EQ(RoomFor(instance, {10, 0}, options), Room::kNow);
  instance.pending_requests = 1;
  EXPECT_EQ(RoomFor(instance, {10, 0}, options), Room::kLater);
  EXPECT_EQ(RoomFor(instance, {64 * 100 + 1, 0}, options), Room::kNever);
}

TEST(MakePolicyTest, AnUnknownNameListsThoseThereAre) {
  const auto policy = MakePolicy("best", {});
  ASSERT_FALSE(policy.ok());
  EXPECT_EQ(policy.status().code(), Code::kInvalidArgument);
  for (const PolicyDescriptor* descriptor : All()) {
    EXPECT_THAT(policy.status().message(), HasSubstr(std::string(descriptor->name)));
  }
}

}  // namespace
}  // namespace millrace::policy
