#include "common/recipe/end_tokens.h"

#include <algorithm>
#include <string_view>

namespace millrace::recipe {
namespace {

constexpr std::string_view kSpellings[] = {
    "<|eot_id|>",    "<|im_end|>", "<|end|>",          "<|return|>",
    "<|call|>",      "<|flush|>",  "<|calls|>",        "<end_of_turn>",
    "<|endoftext|>", "</s>",       "<|eom_id|>",       "<EOT>",
    "[EOT]",         "[EOS]",      "<|end_of_text|>",  "<end_of_utterance>",
    "<eos>",         "<turn|>",    "<|tool_response>", "<｜end▁of▁sentence｜>",
    "[e~[",
};

}  // namespace

std::vector<TokenId> EndTokensBySpelling(const TokenizerSpec& spec) {
  std::vector<TokenId> ids;
  TokenId message_end = -1;
  bool has_call = false;
  bool has_return_or_flush = false;
  for (size_t i = 0; i < spec.types.size() && i < spec.tokens.size(); ++i) {
    if (spec.types[i] != TokenType::kControl && spec.types[i] != TokenType::kUserDefined) continue;
    const std::string_view text = spec.tokens[i];
    if (std::find(std::begin(kSpellings), std::end(kSpellings), text) == std::end(kSpellings)) continue;
    ids.push_back(static_cast<TokenId>(i));
    if (text == "<|end|>") message_end = static_cast<TokenId>(i);
    has_call = has_call || text == "<|call|>" || text == "<|calls|>";
    has_return_or_flush = has_return_or_flush || text == "<|return|>" || text == "<|flush|>";
  }
  // With these two, <|end|> ends one message of an answer that goes on.
  if (has_call && has_return_or_flush) ids.erase(std::remove(ids.begin(), ids.end(), message_end), ids.end());
  return ids;
}

}  // namespace millrace::recipe
