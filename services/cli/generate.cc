#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/config/text_file.h"
#include "common/engine/cpu_backend.h"
#include "common/engine/generate.h"
#include "common/kv/layout.h"
#include "common/model/gguf.h"
#include "common/model/recipe_from_gguf.h"
#include "common/recipe/incremental_detokenizer.h"
#include "services/cli/commands.h"
#include "services/cli/topology.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateConfig {
  std::string model;
  std::string prompt;
  std::string messages;
  std::string prompt_ids;
  uint32_t max_tokens = 128;
  double temperature = 1.0;
  double top_p = 1.0;
  uint32_t top_k = 0;
  double min_p = 0.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
  bool ignore_eos = false;
  uint32_t threads = 0;
  uint32_t chunk_tokens = 256;
  std::string isa = "auto";
  bool json = false;

  void Describe(config::Schema& schema) {
    schema.Add("model", &model, {.help = "GGUF file of the model", .required = true});
    schema.Add("prompt", &prompt, {.help = "text to continue"});
    schema.Add("messages", &messages, {.help = "JSON file of a chat: an array of {\"role\", \"content\"}"});
    schema.Add("prompt-ids", &prompt_ids, {.help = "JSON file of token ids to continue"});
    schema.Add("max-tokens", &max_tokens, {.help = "most tokens to generate", .min = 1});
    schema.Add("temperature", &temperature, {.help = "0 = always the likeliest token", .min = 0, .max = 2});
    schema.Add("top-p", &top_p, {.help = "share of the probability to draw from", .min = 0, .max = 1});
    schema.Add("top-k", &top_k, {.help = "likeliest tokens to draw from; 0 = all"});
    schema.Add("min-p", &min_p, {.help = "least probability, as a share of the likeliest one's", .min = 0, .max = 1});
    schema.Add("presence-penalty", &presence_penalty, {.help = "of tokens generated before", .min = -2, .max = 2});
    schema.Add("frequency-penalty", &frequency_penalty,
               {.help = "of tokens generated before, each time", .min = -2, .max = 2});
    schema.Add("repetition-penalty", &repetition_penalty, {.help = "of tokens in prompt and answer", .min = 0.01});
    schema.Add("seed", &seed, {.help = "the same seed draws the same tokens"});
    schema.Add("ignore-eos", &ignore_eos, {.help = "go on to --max-tokens whatever comes"});
    schema.Add("threads", &threads, {.help = "compute threads; 0 = one a processor"});
    schema.Add("chunk-tokens", &chunk_tokens, {.help = "prompt tokens computed at a time; changes no result"});
    schema.Add("isa", &isa, {.help = "instruction set; changes no result", .choices = engine::cpu::IsaNames()});
    schema.Add("json", &json, {.help = "print prompt_token_ids, token_ids, text and finish_reason as JSON"});
  }

  Status Validate() const {
    const int given = !prompt.empty() + !messages.empty() + !prompt_ids.empty();
    if (given == 1) return OkStatus();
    return Status(Code::kInvalidArgument, Reason::kMissing, "give one of --prompt, --messages and --prompt-ids");
  }
};

StatusOr<Json> ReadJson(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string text, config::ReadTextFile(path));
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return InvalidArgument(path + " is not JSON");
  return json;
}

StatusOr<recipe::Conversation> ReadConversation(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  const Json& list = json.is_object() && json.contains("messages") ? json["messages"] : json;
  const Status bad = InvalidArgument(path + " is not an array of {\"role\": text, \"content\": text}");
  if (!list.is_array() || list.empty()) return bad;
  recipe::Conversation conversation;
  for (const Json& entry : list) {
    if (!entry.is_object() || !entry.contains("role") || !entry["role"].is_string()) return bad;
    if (!entry.contains("content") || !entry["content"].is_string()) return bad;
    recipe::Message message;
    message.role = entry["role"].get<std::string>();
    message.content = std::vector<std::string>{entry["content"].get<std::string>()};
    conversation.messages.push_back(std::move(message));
  }
  return conversation;
}

StatusOr<std::vector<request::TokenId>> ReadIds(const std::string& path, uint32_t vocabulary) {
  MR_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  if (!json.is_array() || json.empty()) return InvalidArgument(path + " is not an array of token ids");
  std::vector<request::TokenId> ids;
  for (const Json& id : json) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocabulary) {
      return InvalidArgument(path + " holds something that is no token id of this model: " + id.dump());
    }
    ids.push_back(id.get<request::TokenId>());
  }
  return ids;
}

StatusOr<std::vector<request::TokenId>> PromptIds(const GenerateConfig& config, const recipe::ModelRecipe& recipe) {
  if (!config.prompt_ids.empty()) return ReadIds(config.prompt_ids, recipe.tokenizer()->vocab_size());
  if (!config.prompt.empty()) return recipe.EncodeText(config.prompt);
  MR_ASSIGN_OR_RETURN(const recipe::Conversation conversation, ReadConversation(config.messages));
  return recipe.RenderChat(conversation);
}

StatusOr<request::Generation> MakeGeneration(const GenerateConfig& config, const recipe::ModelRecipe& recipe,
                                             uint32_t context_tokens) {
  request::Generation generation;
  MR_ASSIGN_OR_RETURN(generation.tokens, PromptIds(config, recipe));
  const size_t prompt = generation.tokens.size();
  if (prompt == 0 || prompt >= context_tokens) {
    return InvalidArgument("the prompt has " + std::to_string(prompt) + " tokens; it must have 1 to " +
                           std::to_string(context_tokens - 1));
  }
  generation.request_id = "generate";
  generation.prompt_tokens = static_cast<uint32_t>(prompt);
  generation.max_new_tokens = std::min(config.max_tokens, context_tokens - generation.prompt_tokens);
  generation.sampling = {.temperature = static_cast<float>(config.temperature),
                         .top_p = static_cast<float>(config.top_p),
                         .top_k = config.top_k,
                         .min_p = static_cast<float>(config.min_p),
                         .presence_penalty = static_cast<float>(config.presence_penalty),
                         .frequency_penalty = static_cast<float>(config.frequency_penalty),
                         .repetition_penalty = static_cast<float>(config.repetition_penalty),
                         .logit_bias = {},
                         .seed = config.seed};
  if (!config.ignore_eos) generation.stop_ids = recipe.stop_ids();
  return generation;
}

StatusOr<std::unique_ptr<engine::Backend>> OpenBackend(const GenerateConfig& config) {
  engine::CpuOptions options;
  options.model_path = config.model;
  options.threads = config.threads;
  MR_ASSIGN_OR_RETURN(options.isa, engine::cpu::ParseIsa(config.isa));
  return engine::OpenCpuBackend(options);
}

Status Generate(const GenerateConfig& config) {
  MR_RETURN_IF_ERROR(config.Validate());
  MR_ASSIGN_OR_RETURN(const auto file, model::GgufFile::Open(config.model));
  MR_ASSIGN_OR_RETURN(const auto recipe, model::RecipeFromGguf(*file));
  MR_ASSIGN_OR_RETURN(const auto backend, OpenBackend(config));
  MR_ASSIGN_OR_RETURN(const request::Generation generation, MakeGeneration(config, *recipe, backend->context_tokens()));

  recipe::IncrementalDetokenizer detokenizer(recipe->tokenizer());
  std::string text;
  const auto emit = [&](const std::string& piece) {
    text += piece;
    if (config.json) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  MR_ASSIGN_OR_RETURN(const engine::GenerateResult result,
                      engine::Generate(*backend, generation, config.chunk_tokens, [&](request::TokenId id) {
                        emit(detokenizer.Push(id));
                        return true;
                      }));
  emit(detokenizer.Flush());
  if (!config.json) {
    std::printf("\n");
    return OkStatus();
  }
  const Json out = {{"prompt_token_ids", generation.tokens},
                    {"token_ids", result.token_ids},
                    {"text", text},
                    {"finish_reason", result.finish_reason == request::FinishReason::kStop ? "stop" : "length"}};
  std::printf("%s\n", out.dump().c_str());
  return OkStatus();
}

}  // namespace

int RunGenerate(const std::vector<std::string>& arguments) {
  GenerateConfig config;
  config.model = DefaultModelPath();
  config::Schema schema("millrace generate", "[flags]",
                        "Runs a model in this one process: the answer that a cluster gives for the same request.");
  config.Describe(schema);
  const ParsedCommand parsed = ParseCommand(schema, arguments);
  if (parsed.over) return parsed.exit_status;
  const Status status = Generate(config);
  return status.ok() ? 0 : Fail("generate", status);
}

}  // namespace millrace::cli
