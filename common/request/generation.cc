#include "common/request/generation.h"

#include <algorithm>

namespace millrace::request {

FinishReason CheckFinish(const Generation& generation, std::span<const TokenId> generated) {
  if (generated.size() > generation.min_tokens && std::find(generation.stop_ids.begin(), generation.stop_ids.end(),
                                                            generated.back()) != generation.stop_ids.end()) {
    return FinishReason::kStop;
  }
  return generated.size() >= generation.max_new_tokens ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace millrace::request
