#include "common/runtime/gateway_prompt.h"

#include <algorithm>
#include <utility>

namespace millrace::runtime {

namespace {

using request::TokenId;

size_t LongestToken(const recipe::Tokenizer& tokenizer) {
  size_t longest = 1;
  for (uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.TokenBytes(static_cast<TokenId>(id)).size());
  }
  return longest;
}

size_t Messages(const gateway::Prompt& prompt) {
  const auto* chat = std::get_if<recipe::Conversation>(&prompt);
  return chat == nullptr ? 0 : chat->messages.size();
}

size_t TextBytes(const gateway::Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return text->size();
  size_t bytes = 0;
  if (const auto* chat = std::get_if<recipe::Conversation>(&prompt)) {
    for (const recipe::Message& message : chat->messages) {
      if (!message.content) continue;
      for (const std::string& part : *message.content) bytes += part.size();
    }
  }
  return bytes;
}

const char* PromptField(const gateway::Prompt& prompt) {
  return std::holds_alternative<recipe::Conversation>(prompt) ? "messages" : "prompt";
}

Status TooLong(const gateway::Prompt& prompt, size_t tokens, bool at_least, uint32_t context) {
  std::string message = "This model's maximum context length is " + std::to_string(context) +
                        " tokens, and the prompt has " + (at_least ? "at least " : "") + std::to_string(tokens) +
                        ". Shorten it.";
  return Status(Code::kInvalidArgument, Reason::kContextLengthExceeded, std::move(message))
      .WithParam(PromptField(prompt));
}

Status OutOfVocabulary(const char* field) {
  return Status(Code::kInvalidArgument, Reason::kBadValue,
                std::string("'") + field + "' has a token id that the model does not have.")
      .WithParam(field);
}

StatusOr<std::vector<TokenId>> PromptIds(const ModelText& model, const gateway::Prompt& prompt) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  if (const auto* text = std::get_if<std::string>(&prompt)) return model.recipe->EncodeText(*text);
  StatusOr<std::vector<TokenId>> ids = model.recipe->RenderChat(std::get<recipe::Conversation>(prompt));
  if (!ids.ok()) {
    Status status = ids.status();
    return std::move(status).WithParam("messages");
  }
  return ids;
}

Status CheckIds(const gateway::CompletionRequest& request, uint32_t vocabulary) {
  auto known = [&](TokenId id) { return id >= 0 && static_cast<uint32_t>(id) < vocabulary; };
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    if (!std::all_of(ids->begin(), ids->end(), known)) return OutOfVocabulary("prompt");
  }
  const auto& stops = request.stop_token_ids;
  if (!std::all_of(stops.begin(), stops.end(), known)) return OutOfVocabulary("stop_token_ids");
  const auto& biases = request.sampling.logit_bias;
  bool biases_known = std::all_of(biases.begin(), biases.end(), [&](const auto& bias) { return known(bias.first); });
  return biases_known ? OkStatus() : OutOfVocabulary("logit_bias");
}

}  // namespace

ModelText::ModelText(std::string model_name, std::string model_digest,
                     std::shared_ptr<const recipe::ModelRecipe> model_recipe)
    : name(std::move(model_name)),
      digest(std::move(model_digest)),
      recipe(std::move(model_recipe)),
      tokenizer(recipe->tokenizer()),
      longest_token_bytes(LongestToken(*tokenizer)) {}

StatusOr<PreparedPrompt> PreparePrompt(const ModelText& model, const gateway::CompletionRequest& request,
                                       uint32_t context_tokens, uint64_t seed) {
  MR_RETURN_IF_ERROR(CheckIds(request, model.tokenizer->vocab_size()));
  // Not worth rendering: a text that can't fit even if every token were the longest one, and more messages than tokens,
  // since a template marks each.
  size_t least = std::max(TextBytes(request.prompt) / model.longest_token_bytes, Messages(request.prompt));
  if (least >= context_tokens) return TooLong(request.prompt, least, true, context_tokens);
  MR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, PromptIds(model, request.prompt));
  if (ids.empty()) {
    const char* field = PromptField(request.prompt);
    return Status(Code::kInvalidArgument, Reason::kBadValue, std::string("'") + field + "' is empty.").WithParam(field);
  }
  if (ids.size() >= context_tokens) return TooLong(request.prompt, ids.size(), false, context_tokens);

  PreparedPrompt prepared;
  request::Generation& generation = prepared.generation;
  generation.request_id = request.request_id;
  generation.prompt_tokens = static_cast<uint32_t>(ids.size());
  uint32_t room = context_tokens - generation.prompt_tokens;
  generation.max_new_tokens = std::min(room, request.max_tokens.value_or(room));
  generation.tokens = std::move(ids);
  generation.sampling = request.sampling;
  generation.sampling.seed = seed;
  if (!request.ignore_eos) generation.stop_ids = model.recipe->stop_ids();
  generation.stop_ids.insert(generation.stop_ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  std::sort(generation.stop_ids.begin(), generation.stop_ids.end());
  generation.stop_ids.erase(std::unique(generation.stop_ids.begin(), generation.stop_ids.end()),
                            generation.stop_ids.end());
  generation.min_tokens = request.min_tokens;
  generation.tenant_salt = request.tenant_salt;
  generation.cache_read = request.cache_read;
  generation.cache_write = request.cache_write;
  if (request.want_prompt_text) prepared.text = model.tokenizer->Decode(generation.tokens);
  return prepared;
}

}  // namespace millrace::runtime
