#include "common/runtime/worker_request.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/kv/layout.h"

namespace millrace::runtime {
namespace {

Status ValidateTokens(const request::Generation& generation, uint32_t vocab) {
  const auto in_vocabulary = [vocab](request::TokenId id) { return id >= 0 && static_cast<uint32_t>(id) < vocab; };
  const auto bad = std::find_if_not(generation.tokens.begin(), generation.tokens.end(), in_vocabulary);
  if (bad != generation.tokens.end()) {
    return InvalidArgument("tokens: id " + std::to_string(*bad) + " is not in [0, " + std::to_string(vocab) + ")");
  }
  for (const auto& [id, bias] : generation.sampling.logit_bias) {
    if (!in_vocabulary(id) || !std::isfinite(bias)) {
      return InvalidArgument("logit_bias: id " + std::to_string(id) + " or its bias is out of range");
    }
  }
  return OkStatus();
}

Status ValidateSampling(const request::SamplingParams& sampling) {
  for (const float value : {sampling.temperature, sampling.top_p, sampling.min_p, sampling.presence_penalty,
                            sampling.frequency_penalty, sampling.repetition_penalty}) {
    if (!std::isfinite(value)) return InvalidArgument("sampling: a parameter is not finite");
  }
  if (sampling.temperature < 0) return InvalidArgument("sampling: temperature is negative");
  if (sampling.repetition_penalty <= 0) return InvalidArgument("sampling: repetition_penalty is not positive");
  return OkStatus();
}

}  // namespace

Status ValidateGeneration(const request::Generation& generation, const engine::Backend& backend) {
  if (generation.prompt_tokens == 0 || generation.prompt_tokens > generation.tokens.size()) {
    return InvalidArgument("prompt_tokens: " + std::to_string(generation.prompt_tokens) + " of " +
                           std::to_string(generation.tokens.size()) + " tokens");
  }
  const uint64_t generated = generation.tokens.size() - generation.prompt_tokens;
  if (generated >= generation.max_new_tokens) {
    return InvalidArgument("max_new_tokens: " + std::to_string(generation.max_new_tokens) + ", but " +
                           std::to_string(generated) + " are generated already");
  }
  const uint64_t whole = uint64_t{generation.prompt_tokens} + generation.max_new_tokens;
  const uint64_t room =
      std::min<uint64_t>(backend.context_tokens(), uint64_t{backend.block_count()} * kv::kBlockTokens);
  if (whole > room) {
    return {
        Code::kInvalidArgument, Reason::kContextLengthExceeded,
        "prompt and answer may need " + std::to_string(whole) + " tokens, this worker holds " + std::to_string(room)};
  }
  MR_RETURN_IF_ERROR(ValidateSampling(generation.sampling));
  return ValidateTokens(generation, backend.vocab_size());
}

Status CheckIncarnation(uint64_t meant, uint64_t own, std::string_view role) {
  if (meant == own) return OkStatus();
  return {Code::kUnavailable, Reason::kPeerLost,
          "this " + std::string(role) + " worker was restarted: the request means an earlier incarnation"};
}

}  // namespace millrace::runtime
