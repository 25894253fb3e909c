#include "common/recipe/special_tokens.h"

#include <absl/container/flat_hash_map.h>

#include <array>

namespace millrace::recipe {

struct SpecialTokens::Trie {
  // (node, byte) to node; node 0 is the root.
  absl::flat_hash_map<uint64_t, uint32_t> edges;
  std::vector<TokenId> ids = {-1};  // by node; -1 = no token ends here
  std::array<bool, 256> starts{};   // bytes that some token starts with

  static uint64_t Key(uint32_t node, char byte) { return (uint64_t{node} << 8) | static_cast<uint8_t>(byte); }
  uint32_t Follow(uint32_t node, char byte) const {
    const auto it = edges.find(Key(node, byte));
    return it == edges.end() ? 0 : it->second;
  }
};

SpecialTokens::SpecialTokens() : trie_(std::make_unique<Trie>()) {}
SpecialTokens::~SpecialTokens() = default;

void SpecialTokens::Add(std::string_view text, TokenId id) {
  if (text.empty()) return;
  trie_->starts[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char c : text) {
    const auto [it, added] = trie_->edges.try_emplace(Trie::Key(node, c), static_cast<uint32_t>(trie_->ids.size()));
    if (added) trie_->ids.push_back(-1);
    node = it->second;
  }
  if (trie_->ids[node] < 0) trie_->ids[node] = id;
}

std::optional<TokenId> SpecialTokens::Find(std::string_view text) const {
  uint32_t node = 0;
  for (const char c : text) {
    node = trie_->Follow(node, c);
    if (node == 0) return std::nullopt;
  }
  if (trie_->ids[node] < 0) return std::nullopt;
  return trie_->ids[node];
}

std::vector<SpecialMatch> SpecialTokens::FindAll(std::string_view text,
                                                 const std::vector<LiteralRange>& literals) const {
  std::vector<SpecialMatch> found;
  for (const LiteralRange& range : literals) {
    for (size_t at = range.start; at < range.end;) {
      if (!trie_->starts[static_cast<uint8_t>(text[at])]) {
        ++at;
        continue;
      }
      SpecialMatch best{at, at, -1};
      uint32_t node = 0;
      for (size_t i = at; i < range.end; ++i) {
        node = trie_->Follow(node, text[i]);
        if (node == 0) break;
        if (trie_->ids[node] >= 0) best = {at, i + 1, trie_->ids[node]};
      }
      if (best.id >= 0) {
        found.push_back(best);
        at = best.end;
      } else {
        ++at;
      }
    }
  }
  return found;
}

}  // namespace millrace::recipe
