#pragma once
// A request for text and its life, as every API sees it: what the gateway's runtime serves and what an API layer asks.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/recipe/conversation.h"
#include "common/request/generation.h"

namespace millrace::gateway {

// A chat, a text, or token ids as they are.
using Prompt = std::variant<recipe::Conversation, std::string, std::vector<request::TokenId>>;

struct CompletionRequest {
  std::string request_id;
  std::string model;
  Prompt prompt;
  request::SamplingParams sampling;    // seed: see `seed`
  std::optional<uint64_t> seed;        // unset = one is drawn
  std::optional<uint32_t> max_tokens;  // unset = to the end of the context; more than fits is clamped; 0 = none
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<request::TokenId> stop_token_ids;
  std::vector<std::string> stop;
  bool include_stop = false;  // the stop string stays in the text
  bool want_prompt_text = false;
  bool large = false;  // takes long to prepare: others must not wait for it
  std::string tenant_salt;
  bool cache_read = true;
  bool cache_write = true;
};

struct Accepted {
  std::vector<request::TokenId> prompt_ids;
  std::string prompt_text;  // only when want_prompt_text
  uint64_t seed = 0;
};

struct Delta {
  std::string text;                   // whole characters, no part of a stop string; may be empty
  std::vector<request::TokenId> ids;  // sampled since the last delta; their text may come later
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;  // part of prompt_tokens that was not computed
  friend bool operator==(const Usage&, const Usage&) = default;
};

struct Finished {
  request::FinishReason reason = request::FinishReason::kNone;
  Usage usage;
};

// Hears of one request on the service's executor: OnAccepted at most once and first, any number of OnDelta, then
// exactly one of OnFinished and OnFailed. Each may destroy the sink, and call Cancel.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  // A worker has taken the request: what fails from now on can't be told by an HTTP status.
  virtual void OnAccepted(Accepted accepted) = 0;
  virtual void OnDelta(Delta delta) = 0;
  virtual void OnFinished(Finished finished) = 0;
  virtual void OnFailed(Status status) = 0;
};

enum class CallId : uint64_t { kNone = 0 };

struct ServedModel {
  std::string name;
  uint32_t context_tokens = 0;  // 0 = not known yet
};

// Used on its executor only.
class CompletionService {
 public:
  virtual ~CompletionService() = default;
  // Never calls `sink` before it returned. The sink must live until its last event or Cancel.
  virtual CallId Start(CompletionRequest request, CompletionSink& sink) = 0;
  // Frees everything the request holds anywhere; the sink hears no more. No-op for a call that ended.
  virtual void Cancel(CallId call) = 0;
  virtual std::vector<ServedModel> Models() const = 0;
  // OK when a request for the model would find workers now; kModelNotFound for a model that is not served here.
  virtual Status CheckModel(const std::string& name) const = 0;
};

}  // namespace millrace::gateway
