#include "common/recipe/byte_pair_merges.h"

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <tuple>

namespace millrace::recipe {
namespace {

// A part of a word: vocabulary tokens, and whatever else merges produce on the way.
using PartId = int32_t;

struct Merge {
  int32_t rank;
  PartId result;
};

uint64_t PairKey(PartId left, PartId right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

struct Node {
  PartId part;
  int32_t previous;
  int32_t next;
};

// A merge that was possible when it was queued; stale once either part changed.
struct Candidate {
  int32_t rank;
  int32_t left;  // index of a node
  PartId left_part;
  PartId right_part;
  PartId result;
  bool operator>(const Candidate& other) const { return std::tie(rank, left) > std::tie(other.rank, other.left); }
};

}  // namespace

struct BytePairMerges::Tables {
  absl::flat_hash_map<std::string, PartId> part_of;
  absl::flat_hash_map<uint64_t, Merge> merges;
  std::vector<TokenId> token_of;      // by part; -1 = no token
  std::vector<std::string> bytes_of;  // by part
  std::array<PartId, 256> byte_part{};

  PartId Intern(const std::string& bytes) {
    const auto [it, added] = part_of.try_emplace(bytes, static_cast<PartId>(token_of.size()));
    if (added) {
      token_of.push_back(-1);
      bytes_of.push_back(bytes);
    }
    return it->second;
  }

  const Merge* Find(PartId left, PartId right) const {
    const auto it = merges.find(PairKey(left, right));
    return it == merges.end() ? nullptr : &it->second;
  }

  void Emit(PartId part, std::vector<TokenId>& ids) const {
    if (token_of[part] >= 0) {
      ids.push_back(token_of[part]);
      return;
    }
    for (const char c : bytes_of[part]) {
      const TokenId id = token_of[byte_part[static_cast<uint8_t>(c)]];
      if (id >= 0) ids.push_back(id);
    }
  }

  // Quadratic, but without any allocation but one: for the few bytes of a usual word.
  void EncodeShort(std::string_view word, std::vector<TokenId>& ids) const {
    std::vector<PartId> parts;
    parts.reserve(word.size());
    for (const char c : word) parts.push_back(byte_part[static_cast<uint8_t>(c)]);
    std::vector<int32_t> ranks(parts.size(), kNoMerge);
    std::vector<PartId> results(parts.size(), 0);
    const auto look_up = [&](size_t i) {
      const Merge* merge = i + 1 < parts.size() ? Find(parts[i], parts[i + 1]) : nullptr;
      ranks[i] = merge != nullptr ? merge->rank : kNoMerge;
      if (merge != nullptr) results[i] = merge->result;
    };
    for (size_t i = 0; i < parts.size(); ++i) look_up(i);
    while (parts.size() > 1) {
      const auto best = std::min_element(ranks.begin(), ranks.end());
      if (*best == kNoMerge) break;
      const size_t i = static_cast<size_t>(best - ranks.begin());
      const auto next = static_cast<std::ptrdiff_t>(i + 1);
      parts[i] = results[i];
      parts.erase(parts.begin() + next);
      ranks.erase(ranks.begin() + next);
      results.erase(results.begin() + next);
      look_up(i);
      if (i > 0) look_up(i - 1);
    }
    for (const PartId part : parts) Emit(part, ids);
  }

  void EncodeLong(std::string_view word, std::vector<TokenId>& ids) const {
    std::vector<Node> nodes(word.size());
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
    const auto enqueue = [&](int32_t left) {
      if (left < 0 || nodes[left].next < 0) return;
      const PartId left_part = nodes[left].part;
      const PartId right_part = nodes[nodes[left].next].part;
      if (const Merge* m = Find(left_part, right_part)) queue.push({m->rank, left, left_part, right_part, m->result});
    };
    const auto count = static_cast<int32_t>(nodes.size());
    for (int32_t i = 0; i < count; ++i) {
      nodes[i] = {byte_part[static_cast<uint8_t>(word[i])], i - 1, i + 1 < count ? i + 1 : -1};
    }
    for (int32_t i = 0; i < count; ++i) enqueue(i);
    while (!queue.empty()) {
      const Candidate c = queue.top();
      queue.pop();
      Node& left = nodes[c.left];
      if (left.part != c.left_part || left.next < 0 || nodes[left.next].part != c.right_part) continue;
      Node& right = nodes[left.next];
      left.part = c.result;
      left.next = right.next;
      right.part = kGone;
      if (left.next >= 0) nodes[left.next].previous = c.left;
      enqueue(left.previous);
      enqueue(c.left);
    }
    for (int32_t i = 0; i >= 0; i = nodes[i].next) Emit(nodes[i].part, ids);
  }

  static constexpr int32_t kNoMerge = std::numeric_limits<int32_t>::max();
  static constexpr PartId kGone = -1;
};

BytePairMerges::BytePairMerges(const std::vector<std::pair<std::string, TokenId>>& vocabulary,
                               const std::vector<std::pair<std::string, std::string>>& merges) {
  auto tables = std::make_unique<Tables>();
  tables->part_of.reserve(vocabulary.size() + 256);
  tables->merges.reserve(merges.size());
  for (const auto& [bytes, id] : vocabulary) {
    const PartId part = tables->Intern(bytes);
    if (tables->token_of[part] < 0) tables->token_of[part] = id;
  }
  for (size_t b = 0; b < 256; ++b) tables->byte_part[b] = tables->Intern(std::string(1, static_cast<char>(b)));
  int32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const PartId left_part = tables->Intern(left);
    const PartId right_part = tables->Intern(right);
    const PartId result = tables->Intern(left + right);
    tables->merges.try_emplace(PairKey(left_part, right_part), Merge{rank, result});
    ++rank;
  }
  tables_ = std::move(tables);
}

BytePairMerges::~BytePairMerges() = default;

void BytePairMerges::Encode(std::string_view word, std::vector<TokenId>& ids) const {
  constexpr size_t kShortBytes = 32;
  if (word.size() <= kShortBytes) {
    tables_->EncodeShort(word, ids);
  } else {
    tables_->EncodeLong(word, ids);
  }
}

TokenId BytePairMerges::Find(std::string_view bytes) const {
  const auto it = tables_->part_of.find(absl::string_view(bytes.data(), bytes.size()));
  return it == tables_->part_of.end() ? -1 : tables_->token_of[it->second];
}

}  // namespace millrace::recipe
