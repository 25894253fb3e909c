#include "tests/support/oracle.h"

#include <algorithm>
#include <span>

#include "common/base/check.h"
#include "common/request/sampler.h"

namespace millrace::support {

std::vector<request::TokenId> OracleTokens(const request::Generation& generation, const FakeBackendOptions& options,
                                           uint32_t chunk) {
  FakeBackendOptions roomy = options;
  roomy.blocks = kv::BlocksFor(options.context_tokens);
  FakeBackend backend(roomy);
  std::vector<kv::BlockIndex> blocks(roomy.blocks);
  for (uint32_t i = 0; i < roomy.blocks; ++i) blocks[i] = roomy.blocks - 1 - i;
  std::vector<request::TokenId> tokens = generation.tokens;
  request::SamplerScratch scratch;
  uint32_t done = 0;
  while (true) {
    const auto count = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - done);
    const engine::SequenceStep step{std::span(tokens).subspan(done, count), done, blocks,
                                    done + count == tokens.size()};
    MR_CHECK(backend.Step({&step, 1}, nullptr).ok());
    done += count;
    if (done < tokens.size()) continue;
    const auto generated = std::span(tokens).subspan(generation.prompt_tokens);
    tokens.push_back(request::Sample(backend.logits()[0], generation, generated, scratch));
    const auto now_generated = std::span(tokens).subspan(generation.prompt_tokens);
    if (request::CheckFinish(generation, now_generated) != request::FinishReason::kNone) {
      return {now_generated.begin(), now_generated.end()};
    }
  }
}

}  // namespace millrace::support
