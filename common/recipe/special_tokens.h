#pragma once
// Finds the spellings of special tokens in text.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/recipe/segment.h"

namespace millrace::recipe {

struct LiteralRange {
  size_t start;
  size_t end;
};

struct SpecialMatch {
  size_t start;
  size_t end;
  TokenId id;
};

class SpecialTokens {
 public:
  SpecialTokens();
  ~SpecialTokens();

  // The first of equal spellings counts; an empty one is ignored.
  void Add(std::string_view text, TokenId id);
  std::optional<TokenId> Find(std::string_view text) const;

  // Leftmost, longest, in order, each inside one of `literals` (ascending, apart).
  std::vector<SpecialMatch> FindAll(std::string_view text, const std::vector<LiteralRange>& literals) const;

 private:
  struct Trie;
  std::unique_ptr<Trie> trie_;
};

}  // namespace millrace::recipe
