#pragma once
// Bodies of POST /v1/chat/completions and POST /v1/completions to requests. What is known but not supported is refused
// with the field's name; what nobody knows is ignored; null is absent; a developer message is a system message.

#include <string_view>

#include "common/base/status.h"
#include "common/gateway/completion.h"

namespace millrace::api {

enum class Endpoint : uint8_t { kChat, kCompletions };

struct ApiRequest {
  gateway::CompletionRequest completion;  // request_id and tenant_salt are the caller's to fill
  Endpoint endpoint = Endpoint::kChat;
  bool stream = false;
  bool include_usage = false;
  bool return_token_ids = false;
  bool echo = false;
};

// Bounds of what costs the gateway's loop or every decode step.
constexpr size_t kMaxStopStrings = 16;
constexpr size_t kMaxStopBytes = 16 << 10;  // of all stop strings of a request
constexpr size_t kMaxStopTokenIds = 128;
constexpr size_t kMaxLogitBiases = 1024;
constexpr size_t kMaxMessages = 64 << 10;

StatusOr<ApiRequest> ParseRequest(Endpoint endpoint, std::string_view body);

}  // namespace millrace::api
