#pragma once
// What a worker needs to know of a request, and the rules that end it. Pure values.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace millrace::request {

using TokenId = int32_t;

// Order of application: logit_bias, penalties, temperature, top_k, top_p, min_p; then the draw (request/sampler.h).
struct SamplingParams {
  float temperature = 1.0f;  // 0 = greedy
  float top_p = 1.0f;        // 0 = greedy
  uint32_t top_k = 0;        // 0 = all, 1 = greedy
  float min_p = 0.0f;
  float presence_penalty = 0.0f;                      // over generated ids
  float frequency_penalty = 0.0f;                     // over generated ids
  float repetition_penalty = 1.0f;                    // over prompt and generated ids
  std::vector<std::pair<TokenId, float>> logit_bias;  // sorted by id, each id once
  uint64_t seed = 0;
  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

enum class FinishReason : uint8_t { kNone = 0, kStop = 1, kLength = 2 };

struct Generation {
  std::string request_id;
  // Prompt followed by what was generated before a re-entry.
  std::vector<TokenId> tokens;
  uint32_t prompt_tokens = 0;   // length of the original prompt; tokens[prompt_tokens..) are generated
  uint32_t max_new_tokens = 0;  // counted from the original prompt; >= 1 and prompt_tokens + max_new_tokens <= context
  SamplingParams sampling;
  std::vector<TokenId> stop_ids;  // sampled ids that end the sequence (EOS ids unless ignore_eos); the id is kept
  uint32_t min_tokens = 0;        // stop_ids do not end it, and are not sampled, before this many generated ids
  std::string tenant_salt;
  bool cache_read = true;   // may take blocks from the store
  bool cache_write = true;  // may put blocks into the store
  friend bool operator==(const Generation&, const Generation&) = default;
};

// Whether the sequence ends with the last of `generated` ids (prompt excluded). Precondition: generated not empty.
FinishReason CheckFinish(const Generation& generation, std::span<const TokenId> generated);

}  // namespace millrace::request
