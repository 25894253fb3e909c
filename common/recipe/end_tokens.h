#pragma once

#include <vector>

#include "common/recipe/tokenizer.h"

namespace millrace::recipe {

// The special tokens of a vocabulary that end an answer, known by their spelling: model files name one or two of them
// and models emit others too.
std::vector<TokenId> EndTokensBySpelling(const TokenizerSpec& spec);

}  // namespace millrace::recipe
