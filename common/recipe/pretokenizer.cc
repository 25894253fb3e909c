#include "common/recipe/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "common/recipe/pretokenizer_rules.h"

namespace millrace::recipe {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

const PretokenizerRules* FindRules(std::string_view name) {
  for (const PretokenizerRules& rules : AllPretokenizerRules()) {
    if (std::find(rules.names.begin(), rules.names.end(), name) != rules.names.end()) return &rules;
  }
  return nullptr;
}

std::string KnownNames() {
  std::string names;
  for (const PretokenizerRules& rules : AllPretokenizerRules()) {
    for (const std::string_view name : rules.names) {
      names += names.empty() ? "" : ", ";
      names += name;
    }
  }
  return names;
}

}  // namespace

struct Pretokenizer::Rule {
  std::unique_ptr<pcre2_code, FreeCode> code;

  // Cuts `piece` into matches and gaps.
  void Cut(std::string_view piece, pcre2_match_data* match, std::vector<std::string_view>& out) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    size_t gap = 0;
    for (size_t at = 0; at < piece.size();) {
      int found = pcre2_match(code.get(), subject, piece.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code.get(), subject, piece.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
      }
      if (found < 0) break;
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
      if (bounds[1] == bounds[0]) break;  // no rule of ours matches nothing
      if (bounds[0] > gap) out.push_back(piece.substr(gap, bounds[0] - gap));
      out.push_back(piece.substr(bounds[0], bounds[1] - bounds[0]));
      gap = at = bounds[1];
    }
    if (gap < piece.size()) out.push_back(piece.substr(gap));
  }
};

Pretokenizer::Pretokenizer() = default;
Pretokenizer::~Pretokenizer() = default;

StatusOr<std::unique_ptr<const Pretokenizer>> Pretokenizer::ForName(std::string_view name) {
  const PretokenizerRules* rules = FindRules(name.empty() ? "default" : name);
  if (rules == nullptr) {
    return Unsupported("pre-tokenizer '" + std::string(name) + "' is not known; we have " + KnownNames());
  }
  std::unique_ptr<Pretokenizer> made(new Pretokenizer());
  made->usually_adds_bos_ = rules->usually_adds_bos;
  made->whole_words_first_ = rules->whole_words_first;
  for (const std::string_view expression : rules->expressions) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    auto rule = std::make_unique<Rule>();
    rule->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (rule->code == nullptr) {
      return Internal("pre-tokenizer '" + std::string(name) + "': expression error " + std::to_string(error) +
                      " at byte " + std::to_string(offset));
    }
    pcre2_jit_compile(rule->code.get(), PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
    made->rules_.push_back(std::move(rule));
  }
  return std::unique_ptr<const Pretokenizer>(std::move(made));
}

std::vector<std::string_view> Pretokenizer::Split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (text.empty()) return pieces;
  pieces.push_back(text);
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(16, nullptr));
  for (const auto& rule : rules_) {
    std::vector<std::string_view> finer;
    finer.reserve(pieces.size());
    for (const std::string_view piece : pieces) rule->Cut(piece, match.get(), finer);
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace millrace::recipe
