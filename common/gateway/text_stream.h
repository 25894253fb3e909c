#pragma once
// Sampled ids to text deltas: detokenizing, stop strings, and the ids that show no text.

#include <string>
#include <vector>

#include "common/gateway/completion.h"
#include "common/recipe/incremental_detokenizer.h"
#include "common/recipe/stop_matcher.h"

namespace millrace::gateway {

// Not thread-safe.
class TextStream {
 public:
  TextStream(std::shared_ptr<const recipe::Tokenizer> tokenizer, const std::vector<std::string>& stops,
             bool include_stop);

  // `ends_text`: the id ended the sequence as a stop id, and its own text is not part of the answer. Returns the text
  // that is sure now.
  std::string Push(request::TokenId id, bool ends_text);
  // The rest, once no id follows.
  std::string Flush();
  // A stop string is complete: the last id is the one that completed it.
  bool stopped() const { return matcher_.stopped(); }

 private:
  recipe::IncrementalDetokenizer detokenizer_;
  recipe::StopMatcher matcher_;
};

}  // namespace millrace::gateway
