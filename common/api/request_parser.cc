#include "common/api/request_parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "common/api/field_reader.h"

namespace millrace::api {

namespace {

using recipe::Message;
using request::TokenId;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxTokensField = std::numeric_limits<int64_t>::max();

std::string Indexed(std::string_view name, size_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]";
}

// ---- content of messages

std::optional<std::string> ReadTextPart(const Json& part, const std::string& path, Status& status) {
  if (part.object() == nullptr) {
    status = Status(Code::kInvalidArgument, Reason::kBadType, "Invalid type for '" + path + "': expected an object.")
                 .WithParam(path);
    return std::nullopt;
  }
  FieldReader fields(part, path);
  std::optional<std::string> type =
      fields.Choice("type", {"text", "image_url", "input_audio", "file", "refusal", "video_url"});
  if (fields.ok() && !type) fields.FailMissing("type");
  if (type && *type != "text") fields.FailUnsupported("type", "the model takes text parts only");
  std::optional<std::string> text = fields.Text("text");
  if (fields.ok() && !text) fields.FailMissing("text");
  status = fields.status();
  return text;
}

void ReadContent(FieldReader& fields, bool required, Message& message) {
  const Json* content = fields.Find("content");
  if (content == nullptr) {
    if (required) fields.FailMissing("content");
    return;
  }
  if (const std::string* text = content->text()) {
    message.content = std::vector<std::string>{*text};
    return;
  }
  const JsonArray* parts = content->array();
  if (parts == nullptr) return fields.FailType("content", "a string or an array of parts");
  if (parts->empty()) return fields.Fail("content", Reason::kBadValue, "'content' must have at least one part.");
  message.content.emplace();
  for (size_t i = 0; i < parts->size(); ++i) {
    Status status;
    std::optional<std::string> text = ReadTextPart((*parts)[i], fields.PathOf(Indexed("content", i)), status);
    if (!status.ok()) return fields.FailWith(std::move(status));
    message.content->push_back(std::move(*text));
  }
}

StatusOr<Message> ReadMessage(const Json& value, const std::string& path) {
  if (value.object() == nullptr) {
    return Status(Code::kInvalidArgument, Reason::kBadType, "Invalid type for '" + path + "': expected an object.")
        .WithParam(path);
  }
  FieldReader fields(value, path);
  Message message;
  std::optional<std::string> role =
      fields.Choice("role", {"system", "developer", "user", "assistant", "tool", "function"});
  if (fields.ok() && !role) fields.FailMissing("role");
  // Most templates know no developer, and drop what they don't know.
  if (role) message.role = *role == "developer" ? "system" : *role;
  if (message.role == "tool" || message.role == "function") fields.FailUnsupported("role", "tools are not supported");
  if (const Json* calls = fields.Find("tool_calls")) {
    if (calls->array() == nullptr) {
      fields.FailType("tool_calls", "an array");
    } else if (!calls->array()->empty()) {
      fields.FailUnsupported("tool_calls", "tools are not supported");
    }
  }
  if (fields.Has("function_call")) fields.FailUnsupported("function_call", "tools are not supported");
  if (fields.Has("audio")) fields.FailUnsupported("audio", "the model takes text only");
  ReadContent(fields, true, message);
  if (std::optional<std::string> name = fields.Text("name")) message.name = *name;
  if (!fields.ok()) return fields.status();
  return message;
}

void ReadMessages(FieldReader& fields, recipe::Conversation& conversation) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) return fields.FailMissing("messages");
  const JsonArray* list = messages->array();
  if (list == nullptr) return fields.FailType("messages", "an array");
  if (list->empty()) return fields.Fail("messages", Reason::kBadValue, "'messages' must have at least one message.");
  if (list->size() > kMaxMessages) return fields.FailTooMany("messages", kMaxMessages, "messages");
  for (size_t i = 0; i < list->size(); ++i) {
    StatusOr<Message> message = ReadMessage((*list)[i], Indexed("messages", i));
    if (!message.ok()) return fields.FailWith(message.status());
    conversation.messages.push_back(*std::move(message));
  }
}

// ---- prompts of completions

void ReadIds(FieldReader& fields, const JsonArray& items, std::vector<TokenId>& ids) {
  for (const Json& item : items) {
    std::optional<int64_t> id = AsInteger(item);
    if (!id) return fields.FailType("prompt", "a string, or an array of token ids");
    if (*id < 0 || *id > kMaxInt32) {
      return fields.Fail("prompt", Reason::kBadValue, "'prompt' has a token id out of range.");
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
}

void ReadPrompt(FieldReader& fields, gateway::Prompt& prompt) {
  const Json* value = fields.Find("prompt");
  if (value == nullptr) return fields.FailMissing("prompt");
  const JsonArray* list = value->array();
  if (list != nullptr && list->empty()) {
    return fields.Fail("prompt", Reason::kBadValue, "'prompt' must not be empty.");
  }
  bool nested = list != nullptr && (list->front().text() != nullptr || list->front().array() != nullptr);
  if (nested && list->size() > 1) {
    bool alike = std::all_of(list->begin(), list->end(),
                             [&](const Json& item) { return item.value.index() == list->front().value.index(); });
    if (!alike) return fields.FailType("prompt", "strings or arrays of token ids, not both");
    return fields.FailUnsupported("prompt", "one prompt a request");
  }
  const Json& one = nested ? list->front() : *value;
  if (const std::string* text = one.text()) {
    prompt = *text;
    return;
  }
  const JsonArray* items = one.array();
  if (items == nullptr) return fields.FailType("prompt", "a string or an array");
  std::vector<TokenId> ids;
  ReadIds(fields, *items, ids);
  prompt = std::move(ids);
}

// ---- what both endpoints share

void ReadStop(FieldReader& fields, std::vector<std::string>& stops) {
  const Json* value = fields.Find("stop");
  if (value == nullptr) return;
  if (const std::string* text = value->text()) {
    stops.push_back(*text);
  } else if (const JsonArray* list = value->array()) {
    if (list->size() > kMaxStopStrings) return fields.FailTooMany("stop", kMaxStopStrings, "strings");
    for (const Json& item : *list) {
      if (item.text() == nullptr) return fields.FailType("stop", "a string or an array of strings");
      stops.push_back(*item.text());
    }
  } else {
    return fields.FailType("stop", "a string or an array of strings");
  }
  size_t bytes = 0;
  for (const std::string& text : stops) bytes += text.size();
  if (bytes > kMaxStopBytes) return fields.FailTooMany("stop", kMaxStopBytes, "bytes in all");
  bool has_empty = std::any_of(stops.begin(), stops.end(), [](const std::string& s) { return s.empty(); });
  if (has_empty) fields.Fail("stop", Reason::kBadValue, "'stop' must not hold an empty string.");
}

void ReadLogitBias(FieldReader& fields, request::SamplingParams& sampling) {
  const Json* value = fields.Find("logit_bias");
  if (value == nullptr) return;
  if (value->object() == nullptr) return fields.FailType("logit_bias", "an object of token id to bias");
  if (value->object()->size() > kMaxLogitBiases) return fields.FailTooMany("logit_bias", kMaxLogitBiases, "token ids");
  for (const auto& [key, item] : *value->object()) {
    TokenId id = 0;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      return fields.Fail("logit_bias", Reason::kBadValue, "'logit_bias' must have token ids as keys.");
    }
    const auto* integer = std::get_if<int64_t>(&item.value);
    const auto* number = std::get_if<double>(&item.value);
    if (integer == nullptr && number == nullptr) return fields.FailType("logit_bias", "numbers as biases");
    double bias = integer != nullptr ? static_cast<double>(*integer) : *number;
    if (bias < -100 || bias > 100) {
      return fields.Fail("logit_bias", Reason::kBadValue, "'logit_bias' must have biases from -100 to 100.");
    }
    sampling.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  // Sorted, and of a repeated id the last one.
  auto& biases = sampling.logit_bias;
  std::stable_sort(biases.begin(), biases.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  auto last =
      std::unique(biases.rbegin(), biases.rend(), [](const auto& a, const auto& b) { return a.first == b.first; });
  biases.erase(biases.begin(), last.base());
}

void ReadStopTokenIds(FieldReader& fields, std::vector<TokenId>& ids) {
  const Json* value = fields.Find("stop_token_ids");
  if (value == nullptr) return;
  if (value->array() == nullptr) return fields.FailType("stop_token_ids", "an array of token ids");
  if (value->array()->size() > kMaxStopTokenIds) return fields.FailTooMany("stop_token_ids", kMaxStopTokenIds, "ids");
  for (const Json& item : *value->array()) {
    std::optional<int64_t> id = AsInteger(item);
    if (!id) return fields.FailType("stop_token_ids", "an array of token ids");
    if (*id < 0 || *id > kMaxInt32) {
      return fields.Fail("stop_token_ids", Reason::kBadValue, "'stop_token_ids' has an id out of range.");
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
}

void ReadSampling(FieldReader& fields, gateway::CompletionRequest& completion) {
  request::SamplingParams& s = completion.sampling;
  auto set = [](float& to, std::optional<double> value) {
    if (value) to = static_cast<float>(*value);
  };
  set(s.temperature, fields.Number("temperature", 0, 2));
  set(s.top_p, fields.Number("top_p", 0, 1));
  set(s.min_p, fields.Number("min_p", 0, 1));
  set(s.presence_penalty, fields.Number("presence_penalty", -2, 2));
  set(s.frequency_penalty, fields.Number("frequency_penalty", -2, 2));
  set(s.repetition_penalty, fields.Number("repetition_penalty", 0.01, 100));
  if (auto top_k = fields.Integer("top_k", -1, kMaxInt32))
    s.top_k = static_cast<uint32_t>(std::max<int64_t>(0, *top_k));
  if (auto seed = fields.Integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    completion.seed = static_cast<uint64_t>(*seed);
  }
  ReadLogitBias(fields, s);
}

void ReadEnding(FieldReader& fields, gateway::CompletionRequest& completion) {
  if (auto min_tokens = fields.Integer("min_tokens", 0, kMaxInt32)) {
    completion.min_tokens = static_cast<uint32_t>(*min_tokens);
  }
  if (completion.max_tokens && completion.min_tokens > *completion.max_tokens) {
    fields.Fail("min_tokens", Reason::kBadValue, "'min_tokens' must not be greater than the most tokens asked for.");
  }
  completion.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  completion.include_stop = fields.Bool("include_stop_str_in_output").value_or(false);
  ReadStopTokenIds(fields, completion.stop_token_ids);
  ReadStop(fields, completion.stop);
}

void ReadStream(FieldReader& fields, ApiRequest& request) {
  request.stream = fields.Bool("stream").value_or(false);
  request.return_token_ids = fields.Bool("return_token_ids").value_or(false);
  const Json* options = fields.Find("stream_options");
  if (options == nullptr) return;
  if (options->object() == nullptr) return fields.FailType("stream_options", "an object");
  if (!request.stream) {
    return fields.Fail("stream_options", Reason::kBadValue, "'stream_options' is allowed only when 'stream' is true.");
  }
  FieldReader inner(*options, "stream_options");
  request.include_usage = inner.Bool("include_usage").value_or(false);
  inner.Bool("include_obfuscation");
  if (!inner.ok()) fields.FailWith(inner.status());
}

// Fields that change what the client gets, and that we can't honour.
void RefuseUnsupported(FieldReader& fields, Endpoint endpoint) {
  if (auto n = fields.Integer("n", 1, 128); n && *n != 1) fields.FailUnsupported("n", "one choice a request");
  for (const char* name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag", "structured_outputs",
        "prompt_logprobs", "logits_processors", "allowed_token_ids", "bad_words", "truncate_prompt_tokens",
        "chat_template", "documents", "web_search_options", "prompt_embeds", "cache_salt"}) {
    if (fields.Find(name) != nullptr) fields.FailUnsupported(name, "not available here");
  }
  if (fields.Bool("use_beam_search").value_or(false)) fields.FailUnsupported("use_beam_search", "not available here");
  const bool adds_special = endpoint == Endpoint::kCompletions;
  if (fields.Bool("add_special_tokens").value_or(adds_special) != adds_special) {
    fields.FailUnsupported("add_special_tokens", adds_special ? "only true" : "only false: the model's template does");
  }
  if (!fields.Bool("skip_special_tokens").value_or(true)) {
    fields.FailUnsupported("skip_special_tokens", "special tokens are never part of the text");
  }
  if (const Json* format = fields.Find("response_format")) {
    if (format->object() == nullptr) return fields.FailType("response_format", "an object");
    FieldReader inner(*format, "response_format");
    auto type = inner.Choice("type", {"text", "json_object", "json_schema"});
    if (inner.ok() && !type) inner.FailMissing("type");
    if (type && *type != "text") inner.FailUnsupported("type", "only text");
    if (!inner.ok()) fields.FailWith(inner.status());
  }
}

void RefuseTools(FieldReader& fields) {
  for (const char* name : {"tools", "functions"}) {
    const Json* tools = fields.Find(name);
    if (tools == nullptr) continue;
    if (tools->array() == nullptr) return fields.FailType(name, "an array");
    if (!tools->array()->empty()) return fields.FailUnsupported(name, "tools are not supported");
  }
  for (const char* name : {"tool_choice", "function_call"}) {
    const Json* choice = fields.Find(name);
    if (choice == nullptr) continue;
    if (choice->text() == nullptr || *choice->text() != "none") {
      return fields.Fail(name, Reason::kBadValue, std::string("'") + name + "' is allowed only with 'tools'.");
    }
  }
  fields.Bool("parallel_tool_calls");
}

void RefuseUnsupportedChat(FieldReader& fields) {
  RefuseTools(fields);
  bool logprobs = fields.Bool("logprobs").value_or(false);
  auto top = fields.Integer("top_logprobs", 0, 20);
  if (top && !logprobs) {
    fields.Fail("top_logprobs", Reason::kBadValue, "'top_logprobs' is allowed only when 'logprobs' is true.");
  }
  if (logprobs) fields.FailUnsupported("logprobs", "not available here");
  if (const Json* modalities = fields.Find("modalities")) {
    if (modalities->array() == nullptr) return fields.FailType("modalities", "an array");
    for (const Json& item : *modalities->array()) {
      if (item.text() == nullptr || *item.text() != "text") fields.FailUnsupported("modalities", "only text");
    }
  }
  if (fields.Find("audio") != nullptr) fields.FailUnsupported("audio", "only text");
  fields.Choice("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max"});
  fields.Choice("service_tier", {"auto", "default", "flex", "scale", "priority"});
  fields.Choice("verbosity", {"low", "medium", "high"});
  if (const Json* extra = fields.Find("chat_template_kwargs")) {
    if (extra->object() == nullptr) return fields.FailType("chat_template_kwargs", "an object");
    if (!extra->object()->empty()) fields.FailUnsupported("chat_template_kwargs", "not available here");
  }
  if (fields.Bool("continue_final_message").value_or(false)) {
    fields.FailUnsupported("continue_final_message", "not available here");
  }
  if (fields.Bool("echo").value_or(false)) fields.FailUnsupported("echo", "only in completions");
}

void RefuseUnsupportedCompletions(FieldReader& fields) {
  if (auto best_of = fields.Integer("best_of", 0, 20)) {
    auto n = fields.Integer("n", 1, 128);
    if (*best_of < n.value_or(1)) {
      fields.Fail("best_of", Reason::kBadValue, "'best_of' must not be less than 'n'.");
    } else if (*best_of > 1) {
      fields.FailUnsupported("best_of", "one choice a request");
    }
  }
  if (fields.Integer("logprobs", 0, 5)) fields.FailUnsupported("logprobs", "not available here");
  if (auto suffix = fields.Text("suffix"); suffix && !suffix->empty()) {
    fields.FailUnsupported("suffix", "the model can't fill in the middle");
  }
}

void ReadChat(FieldReader& fields, ApiRequest& request) {
  recipe::Conversation conversation;
  ReadMessages(fields, conversation);
  conversation.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
  request.completion.prompt = std::move(conversation);
  auto max_tokens = fields.Integer("max_tokens", 1, kMaxTokensField);
  if (auto newer = fields.Integer("max_completion_tokens", 1, kMaxTokensField)) max_tokens = newer;
  if (max_tokens) request.completion.max_tokens = static_cast<uint32_t>(std::min(*max_tokens, kMaxInt32));
  RefuseUnsupportedChat(fields);
}

void ReadCompletions(FieldReader& fields, ApiRequest& request) {
  constexpr int64_t kDefaultMaxTokens = 16;
  ReadPrompt(fields, request.completion.prompt);
  auto max_tokens = fields.Integer("max_tokens", 0, kMaxTokensField);
  request.completion.max_tokens = static_cast<uint32_t>(std::min(max_tokens.value_or(kDefaultMaxTokens), kMaxInt32));
  request.echo = fields.Bool("echo").value_or(false);
  request.completion.want_prompt_text = request.echo;
  RefuseUnsupportedCompletions(fields);
}

}  // namespace

StatusOr<ApiRequest> ParseRequest(Endpoint endpoint, std::string_view body) {
  MR_ASSIGN_OR_RETURN(Json root, ParseJson(body));
  if (root.object() == nullptr) return InvalidArgument("The request body must be a JSON object.");
  FieldReader fields(root, "");
  ApiRequest request;
  request.endpoint = endpoint;
  std::optional<std::string> model = fields.Text("model");
  if (fields.ok() && (!model || model->empty())) fields.FailMissing("model");
  if (model) request.completion.model = *std::move(model);
  if (endpoint == Endpoint::kChat) {
    ReadChat(fields, request);
  } else {
    ReadCompletions(fields, request);
  }
  ReadSampling(fields, request.completion);
  ReadEnding(fields, request.completion);
  ReadStream(fields, request);
  RefuseUnsupported(fields, endpoint);
  if (!fields.ok()) return fields.status();
  return request;
}

}  // namespace millrace::api
