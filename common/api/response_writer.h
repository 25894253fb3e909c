#pragma once
// Bodies and server-sent events of one answer. What each chunk holds is fixed by the OpenAI API; ids ride along as in
// vLLM when asked for: `prompt_token_ids` once, and each choice's `token_ids`.

#include <cstdint>
#include <string>
#include <vector>

#include "common/api/request_parser.h"
#include "common/gateway/completion.h"

namespace millrace::api {

struct AnswerIdentity {
  Endpoint endpoint = Endpoint::kChat;
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created = 0;
  std::string model;
  bool include_usage = false;
  bool return_token_ids = false;
};

using TokenIds = std::vector<request::TokenId>;

// Events end in "\n\n". Not thread-safe.
class ResponseWriter {
 public:
  explicit ResponseWriter(AnswerIdentity identity);

  // Chat: the role chunk. Completions: "" unless `prompt_text` is echoed.
  std::string StartEvent(const TokenIds& prompt_ids, const std::string& prompt_text);
  // "" while there is no text: ids wait for the next event.
  std::string DeltaEvent(const gateway::Delta& delta);
  // The finish chunk, the usage chunk when asked for, and [DONE].
  std::string EndEvents(const gateway::Finished& finished);
  static std::string ErrorEvent(const Status& status);

  std::string WholeBody(const TokenIds& prompt_ids, const std::string& text, const TokenIds& ids,
                        const gateway::Finished& finished) const;

 private:
  std::string TextEvent(const std::string& text);
  std::string ChoiceTail(const char* finish_reason);  // token_ids, logprobs and finish_reason
  std::string Event(const std::string& choice) const;
  void AppendPromptIds(std::string& out, const TokenIds& ids) const;

  const AnswerIdentity identity_;
  const std::string head_;  // of every chunk, up to "choices":
  TokenIds waiting_ids_;
  TokenIds prompt_ids_;  // completions: for the first event
  bool prompt_ids_wait_ = false;
};

const char* FinishReasonName(request::FinishReason reason);
std::string UsageJson(const gateway::Usage& usage);

}  // namespace millrace::api
