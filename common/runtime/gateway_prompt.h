#pragma once
// From a request for text to what workers compute: rendering, tokenizing, limits. Pure, for any thread.

#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/gateway/completion.h"
#include "common/recipe/model_recipe.h"

namespace millrace::runtime {

// A model's text side, and what is worked out of it once.
struct ModelText {
  ModelText(std::string model_name, std::string model_digest, std::shared_ptr<const recipe::ModelRecipe> model_recipe);
  const std::string name;
  const std::string digest;
  const std::shared_ptr<const recipe::ModelRecipe> recipe;
  const std::shared_ptr<const recipe::Tokenizer> tokenizer;
  const size_t longest_token_bytes;  // at least 1
};

struct PreparedPrompt {
  request::Generation generation;  // max_new_tokens is 0 when none were asked for
  std::string text;                // only when wanted
};

// `seed` is used as it is. kInvalidArgument with the field's name; kContextLengthExceeded when the prompt leaves no
// room for one token.
StatusOr<PreparedPrompt> PreparePrompt(const ModelText& model, const gateway::CompletionRequest& request,
                                       uint32_t context_tokens, uint64_t seed);

}  // namespace millrace::runtime
