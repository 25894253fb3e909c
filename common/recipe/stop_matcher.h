#pragma once
// Ends a text stream at the first stop string, and never lets part of one out.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::recipe {

// The stream ends at the first byte that completes a stop string; of several completed by that byte the longest one
// counts. The result does not depend on how the text was cut into pieces. Not thread-safe.
class StopMatcher {
 public:
  // Empty strings are ignored. With `include_stop` the stop string stays in the text.
  explicit StopMatcher(const std::vector<std::string>& stops, bool include_stop = false);

  // Takes the next piece and returns the text that can no longer become part of a stop string. When stopped() becomes
  // true the piece held the end of a stop string, its id is the last one, and later pieces give "".
  std::string Push(std::string_view piece);
  // The text that was held back, once no more comes.
  std::string Flush();

  bool stopped() const { return stopped_ != nullptr; }
  // The stop string found. Precondition: stopped().
  const std::string& stop() const { return stopped_->text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // Knuth-Morris-Pratt
    size_t matched = 0;
  };

  std::vector<Pattern> patterns_;
  bool include_stop_;
  std::string held_;
  const Pattern* stopped_ = nullptr;
};

}  // namespace millrace::recipe
