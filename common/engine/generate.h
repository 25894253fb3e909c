#pragma once
// One request from its first token to its last on one backend, alone: what a whole cluster's answer must equal.

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "common/engine/backend.h"
#include "common/request/generation.h"

namespace millrace::engine {

struct GenerateResult {
  std::vector<request::TokenId> token_ids;  // generated, the prompt excluded
  request::FinishReason finish_reason = request::FinishReason::kNone;
};

// Called after each sampled id; false ends the generation with kStop.
using OnToken = std::function<bool(request::TokenId)>;

// Uses the backend's blocks from 0 on; blocks the calling thread. The prompt is computed `chunk_tokens` at a time (0:
// all at once), which changes no bit of the result. `on_token` may be empty. kInvalidArgument: the generation does not
// fit the backend's context or memory.
StatusOr<GenerateResult> Generate(Backend& backend, const request::Generation& generation, uint32_t chunk_tokens,
                                  const OnToken& on_token);

}  // namespace millrace::engine
