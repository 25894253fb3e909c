#pragma once
// Turns a stream of ids into text deltas that are whole characters.

#include <memory>
#include <string>

#include "common/recipe/tokenizer.h"

namespace millrace::recipe {

// The deltas joined, with the last from Flush, equal Tokenizer::Decode of all ids. Not thread-safe.
class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // The text that `id` completes; at most three bytes are held back.
  std::string Push(TokenId id);
  // What was held back, as U+FFFD; "" when nothing was.
  std::string Flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;
};

}  // namespace millrace::recipe
