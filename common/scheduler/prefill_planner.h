#pragma once
// Chooses what the next prefill step computes. Pure; single-threaded.
//
// A step holds as many tokens as the measured rate computes in the step time, so that progress shows and a new prompt
// waits little. The oldest prompt always gets at least half of a step, so it ends; what is left goes to the prompts
// that are nearest to their end, so a short one never waits for a long one to finish.

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/time.h"

namespace millrace::scheduler {

struct PrefillLimits {
  Duration step_time = Milliseconds(250);  // most a step should take
  uint32_t first_tokens = 128;             // of a step before any was measured
  uint32_t least_tokens = 16;              // of a step, however slow the engine; chunks end at multiples of it
  uint32_t most_tokens = 4096;
  uint32_t most_sequences = 16;  // of a step
};

struct PrefillCandidate {
  uint64_t id = 0;
  uint32_t done = 0;       // tokens whose KV is in place
  uint32_t remaining = 0;  // tokens to compute, at least 1
};

struct PrefillChunk {
  uint64_t id = 0;
  uint32_t tokens = 0;
};

class PrefillPlanner {
 public:
  explicit PrefillPlanner(PrefillLimits limits);

  // `candidates` in order of arrival. The chunks, in that order too, hold at most budget() tokens together and at least
  // one of the first candidate; empty only when there is no candidate.
  std::vector<PrefillChunk> Plan(std::span<const PrefillCandidate> candidates) const;

  // A step of `tokens` took `took`. Slower than expected counts at once, faster only by and by.
  void Measured(uint32_t tokens, Duration took);

  uint32_t budget() const;                                         // tokens of the next step
  double tokens_per_second() const { return tokens_per_second_; }  // 0 = not measured yet

 private:
  PrefillLimits limits_;
  double tokens_per_second_ = 0;
};

}  // namespace millrace::scheduler
