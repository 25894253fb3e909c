#include "common/model/recipe_from_gguf.h"

#include <limits>
#include <string>
#include <utility>

#include "common/recipe/end_tokens.h"

namespace millrace::model {
namespace {

using recipe::TokenId;
using recipe::TokenType;

template <class T>
StatusOr<T> List(const GgufFile& file, const std::string& key, bool required) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end()) {
    if (!required) return T();
    return InvalidArgument(file.path() + ": metadata key '" + key + "' is missing: the file has no tokenizer");
  }
  if (const T* list = std::get_if<T>(&it->second)) return *list;
  return InvalidArgument(file.path() + ": metadata key '" + key + "' has the wrong type");
}

// Unset when absent.
StatusOr<std::optional<TokenId>> Id(const GgufFile& file, const std::string& key) {
  const auto value = file.Uint(key);
  if (!value.ok()) {
    if (value.status().code() == Code::kNotFound) return std::optional<TokenId>();
    return value.status();
  }
  if (*value > static_cast<uint64_t>(std::numeric_limits<TokenId>::max())) {
    return InvalidArgument(file.path() + ": metadata key '" + key + "' is no token id: " + std::to_string(*value));
  }
  return std::optional<TokenId>(static_cast<TokenId>(*value));
}

StatusOr<std::optional<bool>> Flag(const GgufFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end()) return std::optional<bool>();
  if (const bool* flag = std::get_if<bool>(&it->second)) return std::optional<bool>(*flag);
  return InvalidArgument(file.path() + ": metadata key '" + key + "' must be a bool");
}

StatusOr<std::string> OptionalString(const GgufFile& file, const std::string& key) {
  auto value = file.String(key);
  if (!value.ok() && value.status().code() == Code::kNotFound) return std::string();
  return value;
}

}  // namespace

StatusOr<recipe::TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file) {
  recipe::TokenizerSpec spec;
  MR_ASSIGN_OR_RETURN(spec.model, OptionalString(file, "tokenizer.ggml.model"));
  MR_ASSIGN_OR_RETURN(spec.pre, OptionalString(file, "tokenizer.ggml.pre"));
  MR_ASSIGN_OR_RETURN(spec.tokens, List<std::vector<std::string>>(file, "tokenizer.ggml.tokens", true));
  MR_ASSIGN_OR_RETURN(spec.merges, List<std::vector<std::string>>(file, "tokenizer.ggml.merges", false));
  MR_ASSIGN_OR_RETURN(const auto types, List<std::vector<int64_t>>(file, "tokenizer.ggml.token_type", false));
  for (const int64_t type : types) {
    const bool known = type >= 0 && type <= static_cast<int64_t>(TokenType::kByte);
    spec.types.push_back(known ? static_cast<TokenType>(type) : TokenType::kUndefined);
  }
  MR_ASSIGN_OR_RETURN(spec.bos, Id(file, "tokenizer.ggml.bos_token_id"));
  MR_ASSIGN_OR_RETURN(spec.eos, Id(file, "tokenizer.ggml.eos_token_id"));
  MR_ASSIGN_OR_RETURN(spec.add_bos, Flag(file, "tokenizer.ggml.add_bos_token"));
  MR_ASSIGN_OR_RETURN(const std::optional<bool> add_eos, Flag(file, "tokenizer.ggml.add_eos_token"));
  spec.add_eos = add_eos.value_or(false);
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    MR_ASSIGN_OR_RETURN(const std::optional<TokenId> id, Id(file, key));
    if (id) spec.stops.push_back(*id);
  }
  for (const TokenId id : recipe::EndTokensBySpelling(spec)) spec.stops.push_back(id);
  return spec;
}

StatusOr<std::shared_ptr<const recipe::ModelRecipe>> RecipeFromGguf(const GgufFile& file) {
  MR_ASSIGN_OR_RETURN(recipe::TokenizerSpec spec, TokenizerSpecFromGguf(file));
  MR_ASSIGN_OR_RETURN(const std::string chat_template, OptionalString(file, "tokenizer.chat_template"));
  auto made = recipe::ModelRecipe::Create(std::move(spec), chat_template);
  if (!made.ok()) return made.status().Annotate(file.path());
  return made;
}

}  // namespace millrace::model
