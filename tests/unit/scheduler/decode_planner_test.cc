#include "common/scheduler/decode_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/kv/layout.h"

namespace millrace::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DecodePlannerTest, AdmitsByExpectedGrowthOfAll) {
  const DecodePlanner planner({.most_sequences = 8, .expected_growth = 128});
  const std::vector<DecodeSequence> held = {{1, 64, 1000, 1, true}};  // may grow to 3 blocks
  EXPECT_TRUE(planner.Admits(held, 5, 64, 1000));                     // 2 promised + 3
  EXPECT_FALSE(planner.Admits(held, 4, 64, 1000));
  EXPECT_TRUE(planner.Admits(held, 4, 64, 10));  // asks for 10 tokens only: 2 blocks
  EXPECT_TRUE(planner.Admits({}, 2, 64, 1000)) << "alone it only has to start";
  EXPECT_FALSE(planner.Admits({}, 1, 64, 1000));
}

TEST(DecodePlannerTest, RefusesBeyondTheMostSequences) {
  const DecodePlanner planner({.most_sequences = 1});
  EXPECT_FALSE(planner.Admits(std::vector<DecodeSequence>{{1, 1, 1, 1, false}}, 1000, 1, 1));
}

TEST(DecodePlannerTest, PreemptsTheYoungestUntilTheOthersFit) {
  const DecodePlanner planner({});
  const std::vector<DecodeSequence> sequences = {{1, 64, 9, 1, true}, {2, 128, 9, 2, true}, {3, 70, 9, 2, true}};
  const DecodePlan plan = planner.Plan(sequences, 1);
  EXPECT_THAT(plan.preempt, ElementsAre(3));
  EXPECT_THAT(plan.run, ElementsAre(1, 2));
  EXPECT_THAT(plan.grow, ElementsAre(1, 2));
}

TEST(DecodePlannerTest, ReservedSequencesNeitherRunNorGo) {
  const DecodePlanner planner({});
  const DecodePlan plan = planner.Plan(std::vector<DecodeSequence>{{1, 64, 9, 1, true}, {2, 500, 9, 8, false}}, 0);
  EXPECT_THAT(plan.preempt, ElementsAre(1)) << "alone and without room, it goes: nobody else can give a block";
  EXPECT_THAT(plan.run, IsEmpty());
}

TEST(DecodePlannerTest, LearnsHowLongAnswersAre) {
  DecodePlanner planner({.expected_growth = 100});
  for (int i = 0; i < 200; ++i) planner.Finished(10);
  EXPECT_LE(planner.expected_growth(), 11u);
}

// Plays requests of unknown length against a pool and checks at every step that blocks are never over-committed, that
// the oldest is never preempted while others run, and that everything ends.
TEST(DecodePlannerTest, BlocksAreNeverOverCommittedAndTheOldestRunsOn) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    const uint32_t total = 10 + static_cast<uint32_t>(rng.Below(40));
    DecodePlanner planner({.most_sequences = 6, .expected_growth = 32});
    std::vector<DecodeSequence> held;
    std::vector<uint32_t> length;  // by id: tokens it will really generate
    uint32_t free = total;
    int finished = 0;
    for (int step = 0; step < 3000 && finished < 40; ++step) {
      const auto tokens = 1 + static_cast<uint32_t>(rng.Below(200));
      if (length.size() < 60 && planner.Admits(held, free, tokens, 300)) {
        const uint32_t blocks = kv::BlocksFor(tokens);
        ASSERT_LE(blocks, free);
        free -= blocks;
        held.push_back({length.size(), tokens, 300, blocks, true});
        length.push_back(1 + static_cast<uint32_t>(rng.Below(200)));
      }
      const DecodePlan plan = planner.Plan(held, free);
      for (const uint64_t id : plan.preempt) {
        ASSERT_TRUE(held.size() == 1 || id != held.front().id);
        const auto gone = std::find_if(held.begin(), held.end(), [&](auto& s) { return s.id == id; });
        free += gone->blocks;
        held.erase(gone);
        ++finished;
      }
      ASSERT_LE(plan.grow.size(), free);
      for (const uint64_t id : plan.grow) {
        --free;
        ++std::find_if(held.begin(), held.end(), [&](auto& s) { return s.id == id; })->blocks;
      }
      for (const uint64_t id : plan.run) {
        DecodeSequence& sequence = *std::find_if(held.begin(), held.end(), [&](auto& s) { return s.id == id; });
        ++sequence.tokens;
        --sequence.remaining;
        ASSERT_LE(kv::BlocksFor(sequence.tokens), sequence.blocks);
        --length[id];
      }
      std::erase_if(held, [&](const DecodeSequence& sequence) {
        if (length[sequence.id] > 0) return false;
        free += sequence.blocks;
        planner.Finished(100);
        ++finished;
        return true;
      });
    }
    EXPECT_GE(finished, 40) << "seed " << seed;
  }
}

}  // namespace
}  // namespace millrace::scheduler
