#pragma once
// Picks the next token from logits. A pure function of (logits, params, tokens, position): the same on every worker of
// one numerics class, whatever else is in the batch, so a stream resumes elsewhere with the token it would have had.

#include <cstdint>
#include <span>
#include <vector>

#include "common/request/generation.h"

namespace millrace::request {

// Scratch memory that callers may keep between calls. Not thread-safe.
struct SamplerScratch {
  std::vector<float> logits;
  std::vector<uint32_t> order;
};

// `logits`: one per vocabulary id. `generation.tokens` and `generated` give the penalties their counts: `generated` is
// every id after the original prompt. The drawn number is Philox keyed by sampling.seed with counter (position,
// choice), position = generation.prompt_tokens + generated.size(), the absolute position of the token being picked.
// Ties go to the lowest id.
TokenId Sample(std::span<const float> logits, const Generation& generation, std::span<const TokenId> generated,
               SamplerScratch& scratch);

}  // namespace millrace::request
