#include "common/engine/generate.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/request/sampler.h"

namespace millrace::engine {
namespace {

Status Check(const Backend& backend, const request::Generation& generation) {
  if (generation.tokens.empty()) return InvalidArgument("generation: the prompt is empty");
  if (generation.prompt_tokens == 0 || generation.prompt_tokens > generation.tokens.size()) {
    return InvalidArgument("generation: prompt_tokens must be 1 to the number of tokens");
  }
  const uint64_t end = uint64_t{generation.prompt_tokens} + generation.max_new_tokens;
  if (generation.tokens.size() >= end || end > backend.context_tokens()) {
    return InvalidArgument("generation: ends at " + std::to_string(end) + " tokens, has " +
                           std::to_string(generation.tokens.size()) + ", the context has " +
                           std::to_string(backend.context_tokens()));
  }
  if (kv::BlocksFor(end) > backend.block_count()) {
    return InvalidArgument("generation: needs " + std::to_string(kv::BlocksFor(end)) + " KV blocks, there are " +
                           std::to_string(backend.block_count()));
  }
  return OkStatus();
}

}  // namespace

StatusOr<GenerateResult> Generate(Backend& backend, const request::Generation& generation, uint32_t chunk_tokens,
                                  const OnToken& on_token) {
  MR_RETURN_IF_ERROR(Check(backend, generation));
  std::vector<kv::BlockIndex> blocks(kv::BlocksFor(uint64_t{generation.prompt_tokens} + generation.max_new_tokens));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<request::TokenId> tokens = generation.tokens;
  request::SamplerScratch scratch;
  GenerateResult result;
  size_t done = 0;
  while (result.finish_reason == request::FinishReason::kNone) {
    const size_t left = tokens.size() - done;
    const size_t count = chunk_tokens == 0 ? left : std::min<size_t>(left, chunk_tokens);
    const SequenceStep step{std::span(tokens).subspan(done, count), static_cast<uint32_t>(done), blocks, count == left};
    MR_RETURN_IF_ERROR(backend.Step({&step, 1}, nullptr));
    done += count;
    if (count < left) continue;
    const std::span<const request::TokenId> generated = std::span(tokens).subspan(generation.prompt_tokens);
    const request::TokenId next = request::Sample(backend.logits().front(), generation, generated, scratch);
    tokens.push_back(next);
    result.finish_reason = CheckFinish(generation, std::span(tokens).subspan(generation.prompt_tokens));
    if (on_token && !on_token(next) && result.finish_reason == request::FinishReason::kNone) {
      result.finish_reason = request::FinishReason::kStop;
    }
  }
  result.token_ids.assign(tokens.begin() + generation.prompt_tokens, tokens.end());
  return result;
}

}  // namespace millrace::engine
