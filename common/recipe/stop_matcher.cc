#include "common/recipe/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace millrace::recipe {

StopMatcher::StopMatcher(const std::vector<std::string>& stops, bool include_stop) : include_stop_(include_stop) {
  for (const std::string& text : stops) {
    if (text.empty()) continue;
    std::vector<size_t> fallback(text.size(), 0);
    for (size_t i = 1, k = 0; i < text.size(); ++i) {
      while (k > 0 && text[i] != text[k]) k = fallback[k - 1];
      if (text[i] == text[k]) ++k;
      fallback[i] = k;
    }
    patterns_.push_back({text, std::move(fallback)});
  }
}

std::string StopMatcher::Push(std::string_view piece) {
  if (stopped()) return "";
  if (patterns_.empty()) return std::string(piece);
  for (const char c : piece) {
    held_ += c;
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && p.text[p.matched] != c) p.matched = p.fallback[p.matched - 1];
      if (p.text[p.matched] == c) ++p.matched;
      if (p.matched == p.text.size() && (stopped_ == nullptr || stopped_->text.size() < p.text.size())) stopped_ = &p;
    }
    if (stopped()) {
      if (!include_stop_) held_.resize(held_.size() - stopped_->text.size());
      return std::exchange(held_, {});
    }
  }
  size_t keep = 0;
  for (const Pattern& p : patterns_) keep = std::max(keep, p.matched);
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::Flush() { return std::exchange(held_, {}); }

}  // namespace millrace::recipe
