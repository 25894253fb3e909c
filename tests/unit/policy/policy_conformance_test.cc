// What every registered policy must do, whatever the view.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/policy/policy.h"

namespace millrace::policy {
namespace {

using cluster::ClusterView;
using cluster::Instance;
using cluster::Role;

class PolicyConformanceTest : public testing::TestWithParam<const PolicyDescriptor*> {};

// Any values at all: a policy must stand what a peer may report.
ClusterView RandomView(Rng& rng, Role role) {
  ClusterView view;
  const uint64_t count = rng.Below(6);
  for (uint64_t i = 0; i < count; ++i) {
    Instance instance;
    instance.info.instance_id = "i" + std::to_string(i);
    instance.info.incarnation = 100 + i;
    instance.info.role = role;
    instance.info.max_sequences = static_cast<uint32_t>(rng.Below(5));
    instance.info.total_blocks = static_cast<uint32_t>(rng.Below(50));
    instance.load.ready = true;
    instance.load.running = static_cast<uint32_t>(rng.Below(6));
    instance.load.queued_requests = static_cast<uint32_t>(rng.Below(80));
    instance.load.queued_tokens = rng.Below(5) == 0 ? rng.Next64() : rng.Below(5000);
    instance.load.kv_tokens = rng.Below(5) == 0 ? rng.Next64() : rng.Below(5000);
    instance.load.free_blocks = static_cast<uint32_t>(rng.Below(50));
    instance.load.tokens_per_second = rng.Below(3) == 0 ? 0 : rng.Uniform() * 1000;
    instance.pending_requests = static_cast<uint32_t>(rng.Below(4));
    instance.pending_tokens = rng.Below(500);
    view.instances.push_back(instance);
  }
  return view;
}

bool Same(const Decision& a, const Decision& b) {
  if (a.index() != b.index()) return false;
  const Route* route = std::get_if<Route>(&a);
  return route == nullptr || route->target == std::get<Route>(b).target;
}

void CheckDecision(const Decision& decision, const ClusterView& view, const RequestFeatures& request) {
  bool now = false;
  bool later = view.instances.empty();
  for (const Instance& instance : view.instances) {
    const Room room = RoomFor(instance, request, {});
    now = now || room == Room::kNow;
    later = later || room == Room::kLater;
  }
  if (const Route* route = std::get_if<Route>(&decision)) {
    const auto target = std::find_if(view.instances.begin(), view.instances.end(), [&](const Instance& instance) {
      return instance.info.incarnation == route->target;
    });
    ASSERT_NE(target, view.instances.end()) << "a target outside the view";
    EXPECT_EQ(RoomFor(*target, request, {}), Room::kNow);
  } else if (const Shed* shed = std::get_if<Shed>(&decision)) {
    EXPECT_FALSE(shed->status.ok());
    EXPECT_FALSE(shed->status.message().empty());
    EXPECT_FALSE(now || later) << "shed while there is room or will be";
  } else {
    EXPECT_FALSE(now) << "waits while there is room";
  }
}

TEST_P(PolicyConformanceTest, EveryDecisionIsValidAndRepeatable) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto first = GetParam()->create({});
    const auto second = GetParam()->create({});
    Rng rng(seed);
    Rng first_rng(seed);
    Rng second_rng(seed);
    const Role role = rng.Below(2) == 0 ? Role::kPrefill : Role::kDecode;
    for (int i = 0; i < 20; ++i) {
      const ClusterView view = RandomView(rng, role);
      const RequestFeatures request{static_cast<uint32_t>(rng.Below(3000)), static_cast<uint32_t>(rng.Below(500))};
      const Decision decision = first->Pick(view, request, TimePoint{Seconds(i)}, first_rng);
      EXPECT_TRUE(Same(decision, second->Pick(view, request, TimePoint{Seconds(i)}, second_rng)));
      CheckDecision(decision, view, request);
    }
  }
}

TEST_P(PolicyConformanceTest, ABurstWithCountedPicksSpreadsOverEqualInstances) {
  const auto policy = GetParam()->create({});
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    ClusterView view;
    for (uint64_t i = 0; i < 4; ++i) {
      Instance instance;
      instance.info = {"i" + std::to_string(i), 100 + i, role, "h:1", {}, 64, 1000};
      instance.load.ready = true;
      instance.load.free_blocks = 1000;
      view.instances.push_back(instance);
    }
    Rng rng(7);
    for (int i = 0; i < 40; ++i) {
      const Decision decision = policy->Pick(view, {100, 10}, TimePoint{}, rng);
      ASSERT_TRUE(std::holds_alternative<Route>(decision));
      Instance& target = view.instances[std::get<Route>(decision).target - 100];
      target.pending_requests += 1;
      target.pending_tokens += 100;
    }
    for (const Instance& instance : view.instances) EXPECT_EQ(instance.pending_requests, 10u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PolicyConformanceTest, testing::ValuesIn(All().begin(), All().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(PolicyRegistryTest, NamesAndHelpAreThereAndNamesDiffer) {
  std::set<std::string_view> names;
  for (const PolicyDescriptor* descriptor : All()) {
    EXPECT_FALSE(descriptor->help.empty());
    EXPECT_TRUE(names.insert(descriptor->name).second);
  }
  EXPECT_GE(names.size(), 2u);
}

}  // namespace
}  // namespace millrace::policy
