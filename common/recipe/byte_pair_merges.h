#pragma once
// The merge step of byte pair encoding: a word to the ids of its parts.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/recipe/segment.h"

namespace millrace::recipe {

// Immutable; thread-safe.
class BytePairMerges {
 public:
  // `vocabulary`: the bytes of each token that text may become; of equal ones the first counts. `merges`: pairs of
  // bytes, best first.
  BytePairMerges(const std::vector<std::pair<std::string, TokenId>>& vocabulary,
                 const std::vector<std::pair<std::string, std::string>>& merges);
  ~BytePairMerges();

  // Appends the ids of one word: the best pair, leftmost of equals, is merged until none is left. A part that is no
  // token becomes its bytes' tokens; a byte without one is dropped. O(n log n).
  void Encode(std::string_view word, std::vector<TokenId>& ids) const;
  // -1 when the bytes are no token.
  TokenId Find(std::string_view bytes) const;

 private:
  struct Tables;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace millrace::recipe
