#pragma once
// The rules, named by a model file, that cut text into words before byte pair merges.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace millrace::recipe {

// Immutable; thread-safe.
class Pretokenizer {
 public:
  // kUnimplemented names `name` beside those we have.
  static StatusOr<std::unique_ptr<const Pretokenizer>> ForName(std::string_view name);
  ~Pretokenizer();

  // Consecutive pieces that make up `text`, well-formed UTF-8. Linear in the text for every rule set.
  std::vector<std::string_view> Split(std::string_view text) const;

  bool usually_adds_bos() const { return usually_adds_bos_; }
  // A word that is a token is that token, whatever the merges say.
  bool whole_words_first() const { return whole_words_first_; }

 private:
  struct Rule;
  Pretokenizer();

  std::vector<std::unique_ptr<const Rule>> rules_;
  bool usually_adds_bos_ = false;
  bool whole_words_first_ = false;
};

}  // namespace millrace::recipe
