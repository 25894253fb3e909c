#pragma once
// The table behind Pretokenizer: one row adds a family of models.

#include <span>
#include <string_view>

namespace millrace::recipe {

struct PretokenizerRules {
  std::span<const std::string_view> names;
  std::span<const std::string_view> expressions;  // Perl syntax, Unicode properties
  bool usually_adds_bos = false;
  bool whole_words_first = false;
};

std::span<const PretokenizerRules> AllPretokenizerRules();

}  // namespace millrace::recipe
