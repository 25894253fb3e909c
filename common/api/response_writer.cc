#include "common/api/response_writer.h"

#include <utility>

#include "common/api/error_body.h"
#include "common/api/json.h"

namespace millrace::api {

namespace {

std::string Head(const AnswerIdentity& identity, const char* object) {
  std::string out = "{\"id\":";
  AppendJsonString(out, identity.id);
  out += ",\"object\":\"";
  out += object;
  out += "\",\"created\":" + std::to_string(identity.created) + ",\"model\":";
  AppendJsonString(out, identity.model);
  return out;
}

void AppendIds(std::string& out, const TokenIds& ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(ids[i]);
  }
  out += ']';
}

}  // namespace

const char* FinishReasonName(request::FinishReason reason) {
  return reason == request::FinishReason::kLength ? "length" : "stop";
}

std::string UsageJson(const gateway::Usage& usage) {
  return "{\"prompt_tokens\":" + std::to_string(usage.prompt_tokens) +
         ",\"completion_tokens\":" + std::to_string(usage.completion_tokens) +
         ",\"total_tokens\":" + std::to_string(uint64_t{usage.prompt_tokens} + usage.completion_tokens) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":" + std::to_string(usage.cached_tokens) +
         ",\"audio_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,"
         "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}";
}

ResponseWriter::ResponseWriter(AnswerIdentity identity)
    : identity_(std::move(identity)),
      head_(Head(identity_, identity_.endpoint == Endpoint::kChat ? "chat.completion.chunk" : "text_completion")) {}

std::string ResponseWriter::Event(const std::string& choice) const {
  std::string out = "data: " + head_;
  out += ",\"choices\":[" + choice + "]";
  if (identity_.include_usage) out += ",\"usage\":null";
  return out + "}\n\n";
}

void ResponseWriter::AppendPromptIds(std::string& out, const TokenIds& ids) const {
  if (!identity_.return_token_ids) return;
  out += ",\"prompt_token_ids\":";
  AppendIds(out, ids);
}

std::string ResponseWriter::StartEvent(const TokenIds& prompt_ids, const std::string& prompt_text) {
  if (identity_.endpoint == Endpoint::kCompletions) {
    prompt_ids_ = prompt_ids;
    prompt_ids_wait_ = identity_.return_token_ids;
    return prompt_text.empty() ? "" : TextEvent(prompt_text);
  }
  std::string out = "data: " + head_;
  out +=
      ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
      "\"finish_reason\":null}]";
  if (identity_.include_usage) out += ",\"usage\":null";
  AppendPromptIds(out, prompt_ids);
  return out + "}\n\n";
}

std::string ResponseWriter::ChoiceTail(const char* finish_reason) {
  std::string out = ",\"logprobs\":null,\"finish_reason\":";
  out += finish_reason == nullptr ? "null" : "\"" + std::string(finish_reason) + "\"";
  if (std::exchange(prompt_ids_wait_, false)) AppendPromptIds(out, prompt_ids_);
  if (identity_.return_token_ids) {
    out += ",\"token_ids\":";
    AppendIds(out, waiting_ids_);
    waiting_ids_.clear();
  }
  return out + "}";
}

std::string ResponseWriter::TextEvent(const std::string& text) {
  bool chat = identity_.endpoint == Endpoint::kChat;
  std::string choice = chat ? "{\"index\":0,\"delta\":{\"content\":" : "{\"text\":";
  AppendJsonString(choice, text);
  choice += chat ? "}" : ",\"index\":0";
  return Event(choice + ChoiceTail(nullptr));
}

std::string ResponseWriter::DeltaEvent(const gateway::Delta& delta) {
  if (identity_.return_token_ids) waiting_ids_.insert(waiting_ids_.end(), delta.ids.begin(), delta.ids.end());
  return delta.text.empty() ? "" : TextEvent(delta.text);
}

std::string ResponseWriter::EndEvents(const gateway::Finished& finished) {
  std::string choice =
      identity_.endpoint == Endpoint::kChat ? "{\"index\":0,\"delta\":{}" : "{\"text\":\"\",\"index\":0";
  std::string out = Event(choice + ChoiceTail(FinishReasonName(finished.reason)));
  if (identity_.include_usage)
    out += "data: " + head_ + ",\"choices\":[],\"usage\":" + UsageJson(finished.usage) + "}\n\n";
  return out + "data: [DONE]\n\n";
}

std::string ResponseWriter::ErrorEvent(const Status& status) { return "data: " + ErrorBody(status) + "\n\n"; }

std::string ResponseWriter::WholeBody(const TokenIds& prompt_ids, const std::string& text, const TokenIds& ids,
                                      const gateway::Finished& finished) const {
  bool chat = identity_.endpoint == Endpoint::kChat;
  std::string out = Head(identity_, chat ? "chat.completion" : "text_completion");
  out += ",\"choices\":[{\"index\":0,";
  out += chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":";
  AppendJsonString(out, text);
  if (chat) out += ",\"refusal\":null}";
  out += ",\"logprobs\":null,\"finish_reason\":\"";
  out += FinishReasonName(finished.reason);
  out += '"';
  if (!chat) AppendPromptIds(out, prompt_ids);
  if (identity_.return_token_ids) {
    out += ",\"token_ids\":";
    AppendIds(out, ids);
  }
  out += "}],\"usage\":" + UsageJson(finished.usage);
  if (chat) AppendPromptIds(out, prompt_ids);
  return out + "}";
}

}  // namespace millrace::api
