#pragma once
// The reference that every disaggregated run is compared with.

#include <vector>

#include "common/request/generation.h"
#include "tests/support/fake_backend.h"

namespace millrace::support {

// What one process alone generates: prefill in chunks of `chunk` tokens, then one token a step, by a fresh FakeBackend
// of `options`; ids after the original prompt, those of a re-entry included.
std::vector<request::TokenId> OracleTokens(const request::Generation& generation,
                                           const FakeBackendOptions& options = {}, uint32_t chunk = 512);

}  // namespace millrace::support
