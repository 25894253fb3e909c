#include "common/recipe/tokenizer.h"

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/recipe/byte_pair_merges.h"
#include "common/recipe/pretokenizer.h"
#include "common/recipe/special_tokens.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe {
namespace {

// GPT-2 spells each byte as one printable character: itself where it is printable, else the next unused above U+0100.
class ByteSpelling {
 public:
  ByteSpelling() {
    bytes_.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      bytes_[printable ? static_cast<char32_t>(b) : next++] = static_cast<int16_t>(b);
    }
  }

  // Characters outside the spelling stand for themselves.
  std::string ToBytes(std::string_view spelled) const {
    std::string bytes;
    bytes.reserve(spelled.size());
    for (size_t at = 0; at < spelled.size();) {
      const Utf8Step step = NextUtf8(spelled, at);
      if (step.kind == Utf8Kind::kValid && step.codepoint < bytes_.size() && bytes_[step.codepoint] >= 0) {
        bytes += static_cast<char>(bytes_[step.codepoint]);
      } else {
        bytes += spelled.substr(at, step.length);
      }
      at += step.length;
    }
    return bytes;
  }

 private:
  std::array<int16_t, 0x144> bytes_;
};

bool IsSpecial(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined || type == TokenType::kUnknown;
}

Status CheckSpec(const TokenizerSpec& spec) {
  if (spec.model != "gpt2") return Unsupported("tokenizer model '" + spec.model + "' is not known; we have gpt2");
  if (spec.tokens.empty()) return InvalidArgument("the vocabulary is empty");
  if (spec.tokens.size() > (1U << 24)) return InvalidArgument("the vocabulary has more than 2^24 tokens");
  if (!spec.types.empty() && spec.types.size() != spec.tokens.size()) {
    return InvalidArgument(std::to_string(spec.types.size()) + " token types for " +
                           std::to_string(spec.tokens.size()) + " tokens");
  }
  std::vector<std::pair<std::string_view, TokenId>> named;
  if (spec.bos) named.emplace_back("BOS", *spec.bos);
  if (spec.eos) named.emplace_back("EOS", *spec.eos);
  for (const TokenId id : spec.stops) named.emplace_back("stop", id);
  for (const auto& [name, id] : named) {
    if (id < 0 || static_cast<size_t>(id) >= spec.tokens.size()) {
      return InvalidArgument(std::string(name) + " id " + std::to_string(id) + " is outside the vocabulary of " +
                             std::to_string(spec.tokens.size()));
    }
  }
  return OkStatus();
}

StatusOr<std::vector<std::pair<std::string, std::string>>> ParseMerges(const std::vector<std::string>& lines,
                                                                       const ByteSpelling& spelling) {
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == line.size()) {
      return InvalidArgument("merge " + std::to_string(i) + " is not a pair: '" + lines[i] + "'");
    }
    merges.emplace_back(spelling.ToBytes(line.substr(0, space)), spelling.ToBytes(line.substr(space + 1)));
  }
  return merges;
}

class BytePairTokenizer final : public Tokenizer {
 public:
  BytePairTokenizer(TokenizerSpec spec, std::unique_ptr<const Pretokenizer> pretokenizer,
                    std::vector<std::pair<std::string, std::string>> merges, const ByteSpelling& spelling)
      : pretokenizer_(std::move(pretokenizer)),
        types_(std::move(spec.types)),
        bos_(spec.bos),
        eos_(spec.eos),
        adds_bos_(spec.add_bos.value_or(pretokenizer_->usually_adds_bos()) && spec.bos.has_value()),
        adds_eos_(spec.add_eos && spec.eos.has_value()),
        stop_ids_(std::move(spec.stops)) {
    types_.resize(spec.tokens.size(), TokenType::kNormal);
    if (eos_) stop_ids_.push_back(*eos_);
    std::sort(stop_ids_.begin(), stop_ids_.end());
    stop_ids_.erase(std::unique(stop_ids_.begin(), stop_ids_.end()), stop_ids_.end());
    std::vector<std::pair<std::string, TokenId>> vocabulary;
    bytes_.reserve(spec.tokens.size());
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      if (IsSpecial(types_[i])) {
        specials_.Add(spec.tokens[i], id);
        bytes_.push_back(std::move(spec.tokens[i]));
      } else {
        bytes_.push_back(spelling.ToBytes(spec.tokens[i]));
        vocabulary.emplace_back(bytes_.back(), id);
      }
    }
    merges_ = std::make_unique<BytePairMerges>(vocabulary, merges);
  }

  std::vector<TokenId> Encode(std::string_view text, SpecialText specials) const override {
    const Segment segment{.text = std::string(text), .is_content = specials == SpecialText::kIsText};
    return Encode(std::span(&segment, 1));
  }

  std::vector<TokenId> Encode(std::span<const Segment> segments) const override {
    std::string text;
    std::vector<LiteralRange> literals;
    for (const Segment& segment : segments) {
      const size_t start = text.size();
      text += IsValidUtf8(segment.text) ? segment.text : ReplaceInvalidUtf8(segment.text);
      if (segment.is_content || text.size() == start) continue;
      if (!literals.empty() && literals.back().end == start) {
        literals.back().end = text.size();
      } else {
        literals.push_back({start, text.size()});
      }
    }
    std::vector<TokenId> ids;
    WordCache cache;
    size_t plain = 0;
    for (const SpecialMatch& match : specials_.FindAll(text, literals)) {
      EncodePlain(std::string_view(text).substr(plain, match.start - plain), cache, ids);
      ids.push_back(match.id);
      plain = match.end;
    }
    EncodePlain(std::string_view(text).substr(plain), cache, ids);
    return ids;
  }

  std::string Decode(std::span<const TokenId> ids) const override {
    std::string bytes;
    for (const TokenId id : ids) bytes += TextBytes(id);
    return ReplaceInvalidUtf8(bytes);
  }

  std::string_view TextBytes(TokenId id) const override { return IsControl(id) ? std::string_view() : TokenBytes(id); }
  std::string_view TokenBytes(TokenId id) const override {
    return Contains(id) ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
  }
  bool IsControl(TokenId id) const override {
    if (!Contains(id)) return false;
    const TokenType type = types_[static_cast<size_t>(id)];
    return type == TokenType::kControl || type == TokenType::kUnknown;
  }
  std::optional<TokenId> Find(std::string_view special_text) const override { return specials_.Find(special_text); }

  uint32_t vocab_size() const override { return static_cast<uint32_t>(bytes_.size()); }
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  bool adds_bos() const override { return adds_bos_; }
  bool adds_eos() const override { return adds_eos_; }
  const std::vector<TokenId>& stop_ids() const override { return stop_ids_; }

 private:
  struct Range {
    uint32_t start;
    uint32_t count;
  };
  // Where in the output the ids of a word seen before lie; looked up, never iterated.
  using WordCache = absl::flat_hash_map<absl::string_view, Range>;

  bool Contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < bytes_.size(); }

  void EncodePlain(std::string_view text, WordCache& cache, std::vector<TokenId>& ids) const {
    for (const std::string_view word : pretokenizer_->Split(text)) {
      const auto [it, added] =
          cache.try_emplace(absl::string_view(word.data(), word.size()), Range{static_cast<uint32_t>(ids.size()), 0});
      if (!added) {
        for (uint32_t i = 0; i < it->second.count; ++i) ids.push_back(ids[it->second.start + i]);
        continue;
      }
      EncodeWord(word, ids);
      it->second.count = static_cast<uint32_t>(ids.size()) - it->second.start;
    }
  }

  void EncodeWord(std::string_view word, std::vector<TokenId>& ids) const {
    if (pretokenizer_->whole_words_first()) {
      if (const TokenId id = merges_->Find(word); id >= 0) {
        ids.push_back(id);
        return;
      }
    }
    merges_->Encode(word, ids);
  }

  std::unique_ptr<const Pretokenizer> pretokenizer_;
  std::vector<TokenType> types_;
  const std::optional<TokenId> bos_;
  const std::optional<TokenId> eos_;
  const bool adds_bos_;
  const bool adds_eos_;
  std::vector<TokenId> stop_ids_;
  std::vector<std::string> bytes_;
  SpecialTokens specials_;
  std::unique_ptr<const BytePairMerges> merges_;
};

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  MR_RETURN_IF_ERROR(CheckSpec(spec));
  MR_ASSIGN_OR_RETURN(auto pretokenizer, Pretokenizer::ForName(spec.pre));
  const ByteSpelling spelling;
  MR_ASSIGN_OR_RETURN(auto merges, ParseMerges(spec.merges, spelling));
  return std::shared_ptr<const Tokenizer>(
      std::make_shared<BytePairTokenizer>(std::move(spec), std::move(pretokenizer), std::move(merges), spelling));
}

}  // namespace millrace::recipe
