#pragma once
// The recipe of a GGUF file: its tokenizer and chat template metadata in our terms.

#include <memory>

#include "common/base/status.h"
#include "common/model/gguf.h"
#include "common/recipe/model_recipe.h"

namespace millrace::model {

// kInvalidArgument names the metadata key that is missing or wrong; kUnimplemented as Tokenizer::Create.
StatusOr<recipe::TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file);
StatusOr<std::shared_ptr<const recipe::ModelRecipe>> RecipeFromGguf(const GgufFile& file);

}  // namespace millrace::model
