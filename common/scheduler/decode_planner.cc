#include "common/scheduler/decode_planner.h"

#include <algorithm>

#include "common/kv/layout.h"

namespace millrace::scheduler {
namespace {

constexpr double kNewestWeight = 1.0 / 16;

bool NeedsBlock(const DecodeSequence& sequence) {
  return kv::BlocksFor(uint64_t{sequence.tokens} + 1) > sequence.blocks;
}

}  // namespace

DecodePlanner::DecodePlanner(DecodeLimits limits) : limits_(limits), mean_generated_(limits.expected_growth) {}

uint32_t DecodePlanner::expected_growth() const { return std::max(1u, static_cast<uint32_t>(mean_generated_)); }

void DecodePlanner::Finished(uint32_t generated) { mean_generated_ += kNewestWeight * (generated - mean_generated_); }

uint32_t DecodePlanner::BlocksWhenGrown(uint32_t tokens, uint32_t remaining) const {
  return kv::BlocksFor(uint64_t{tokens} + std::min(remaining, expected_growth()));
}

bool DecodePlanner::Admits(std::span<const DecodeSequence> held, uint32_t free_blocks, uint32_t tokens,
                           uint32_t remaining) const {
  if (held.size() >= limits_.most_sequences) return false;
  if (held.empty()) return kv::BlocksFor(uint64_t{tokens} + 1) <= free_blocks;
  uint64_t promised = BlocksWhenGrown(tokens, remaining);
  for (const DecodeSequence& sequence : held) {
    promised += std::max(BlocksWhenGrown(sequence.tokens, sequence.remaining), sequence.blocks) - sequence.blocks;
  }
  return promised <= free_blocks;
}

DecodePlan DecodePlanner::Plan(std::span<const DecodeSequence> sequences, uint32_t free_blocks) const {
  std::vector<DecodeSequence> running;
  uint64_t wanted = 0;
  for (const DecodeSequence& sequence : sequences) {
    if (!sequence.running) continue;
    running.push_back(sequence);
    if (NeedsBlock(sequence)) ++wanted;
  }
  DecodePlan plan;
  uint64_t free = free_blocks;
  while (wanted > free) {
    const DecodeSequence& youngest = running.back();
    plan.preempt.push_back(youngest.id);
    free += youngest.blocks;
    if (NeedsBlock(youngest)) --wanted;
    running.pop_back();
  }
  for (const DecodeSequence& sequence : running) {
    plan.run.push_back(sequence.id);
    if (NeedsBlock(sequence)) plan.grow.push_back(sequence.id);
  }
  return plan;
}

}  // namespace millrace::scheduler
