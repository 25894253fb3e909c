#include "common/recipe/incremental_detokenizer.h"

#include <utility>

#include "common/recipe/utf8.h"

namespace millrace::recipe {

std::string IncrementalDetokenizer::Push(TokenId id) {
  pending_ += tokenizer_->TextBytes(id);
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Step step = NextUtf8(pending_, at);
    if (step.kind == Utf8Kind::kIncomplete) break;
    out += step.kind == Utf8Kind::kValid ? std::string_view(pending_).substr(at, step.length) : kReplacementCharacter;
    at += step.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string IncrementalDetokenizer::Flush() { return ReplaceInvalidUtf8(std::exchange(pending_, {})); }

}  // namespace millrace::recipe
