#include "common/scheduler/prefill_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/random.h"

namespace millrace::scheduler {
namespace {

uint32_t Granted(const std::vector<PrefillChunk>& chunks, uint64_t id) {
  for (const PrefillChunk& chunk : chunks) {
    if (chunk.id == id) return chunk.tokens;
  }
  return 0;
}

TEST(PrefillPlannerTest, StepFitsTheTimeAtTheMeasuredRate) {
  PrefillPlanner planner({});
  EXPECT_EQ(planner.budget(), 128u);
  planner.Measured(128, Milliseconds(128));  // 1000 a second
  EXPECT_EQ(planner.budget(), 240u);         // 250 down to a multiple of 16
  const std::vector<PrefillCandidate> one = {{7, 0, 5000}};
  EXPECT_EQ(Granted(planner.Plan(one), 7), 240u);
}

TEST(PrefillPlannerTest, SlowerStepsCountAtOnceAndFasterOnesByAndBy) {
  PrefillPlanner planner({});
  planner.Measured(1000, Seconds(1));
  planner.Measured(100, Seconds(1));
  EXPECT_LT(planner.tokens_per_second(), 400);
  const double slow = planner.tokens_per_second();
  planner.Measured(1000, Seconds(1));
  EXPECT_LT(planner.tokens_per_second(), slow + 0.5 * (1000 - slow));
}

TEST(PrefillPlannerTest, ClockThatDidNotMoveIsNoMeasurement) {
  PrefillPlanner planner({});
  planner.Measured(128, Duration(0));
  EXPECT_EQ(planner.tokens_per_second(), 0);
}

TEST(PrefillPlannerTest, ShortPromptDoesNotWaitForALongOne) {
  const PrefillPlanner planner({.first_tokens = 256});
  const auto chunks = planner.Plan(std::vector<PrefillCandidate>{{1, 0, 100000}, {2, 0, 60}});
  EXPECT_EQ(Granted(chunks, 2), 60u);
  EXPECT_GE(Granted(chunks, 1), 128u);
}

TEST(PrefillPlannerTest, SeveralPromptsShareOneStep) {
  const PrefillPlanner planner({.first_tokens = 256});
  const auto chunks = planner.Plan(std::vector<PrefillCandidate>{{1, 0, 50}, {2, 0, 60}, {3, 64, 1}, {4, 0, 500}});
  EXPECT_EQ(Granted(chunks, 1), 50u);
  EXPECT_EQ(Granted(chunks, 2), 60u);
  EXPECT_EQ(Granted(chunks, 3), 1u);
  EXPECT_EQ(Granted(chunks, 4), 144u);
}

TEST(PrefillPlannerTest, AnySetKeepsTheBudgetAndTheOldestMoves) {
  Rng rng(11);
  for (int round = 0; round < 2000; ++round) {
    PrefillLimits limits;
    limits.first_tokens = 16 + static_cast<uint32_t>(rng.Below(600));
    limits.least_tokens = 1 + static_cast<uint32_t>(rng.Below(64));
    limits.most_sequences = 1 + static_cast<uint32_t>(rng.Below(8));
    const PrefillPlanner planner(limits);
    std::vector<PrefillCandidate> candidates;
    const uint64_t count = 1 + rng.Below(12);
    for (uint64_t i = 0; i < count; ++i) {
      candidates.push_back({i, static_cast<uint32_t>(rng.Below(3) * 64), 1 + static_cast<uint32_t>(rng.Below(900))});
    }
    const auto chunks = planner.Plan(candidates);
    uint32_t total = 0;
    for (const PrefillChunk& chunk : chunks) {
      ASSERT_GE(chunk.tokens, 1u);
      ASSERT_LE(chunk.tokens, candidates[chunk.id].remaining);
      total += chunk.tokens;
    }
    ASSERT_LE(total, planner.budget());
    ASSERT_LE(chunks.size(), limits.most_sequences);
    ASSERT_EQ(chunks.front().id, 0u);
    ASSERT_TRUE(std::is_sorted(chunks.begin(), chunks.end(), [](auto& a, auto& b) { return a.id < b.id; }));
  }
}

TEST(PrefillPlannerTest, NobodyStarvesUnderAStreamOfShortPrompts) {
  const PrefillPlanner planner({.first_tokens = 128});
  std::vector<PrefillCandidate> waiting = {{0, 0, 4000}};
  uint64_t next = 1;
  int steps = 0;
  while (!waiting.empty() && waiting.front().id == 0) {
    waiting.push_back({next++, 0, 100});
    for (const PrefillChunk& chunk : planner.Plan(waiting)) {
      for (PrefillCandidate& candidate : waiting) {
        if (candidate.id != chunk.id) continue;
        candidate.done += chunk.tokens;
        candidate.remaining -= chunk.tokens;
      }
    }
    std::erase_if(waiting, [](const PrefillCandidate& candidate) { return candidate.remaining == 0; });
    ASSERT_LE(++steps, 4000 / 64 + 1);
  }
}

}  // namespace
}  // namespace millrace::scheduler
