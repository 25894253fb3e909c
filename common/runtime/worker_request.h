#pragma once
// What a worker refuses before it spends anything on a request: the sender may be of another version or broken.

#include <string_view>

#include "common/base/status.h"
#include "common/engine/backend.h"
#include "common/request/generation.h"

namespace millrace::runtime {

// kInvalidArgument naming the field, or kContextLengthExceeded when the backend's context or KV memory can never hold
// the request. OK: every id is in the vocabulary, at least one token may be generated, all parameters are finite.
Status ValidateGeneration(const request::Generation& generation, const engine::Backend& backend);

// kUnavailable(kPeerLost): the sender means another life of this process.
Status CheckIncarnation(uint64_t meant, uint64_t own, std::string_view role);

}  // namespace millrace::runtime
