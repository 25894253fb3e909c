#pragma once
// Byte-level BPE: text to token ids and back, with the ids that the model was trained on.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/recipe/segment.h"

namespace millrace::recipe {

// Values are those of GGUF.
enum class TokenType : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,  // means something to the model that text can't say; left out of output text
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct TokenizerSpec {
  std::string model;                // "gpt2" = byte-level BPE
  std::string pre;                  // names the rules that cut text into words; "" = "default"
  std::vector<std::string> tokens;  // by id, bytes spelled as in GPT-2's vocabulary
  std::vector<TokenType> types;     // one a token; empty = all normal
  std::vector<std::string> merges;  // "left right", best first
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::vector<TokenId> stops;   // further ids that end an answer
  std::optional<bool> add_bos;  // unset = what is usual for `pre`
  bool add_eos = false;
};

enum class SpecialText : uint8_t {
  kParse,   // the spelling of a control or user-defined token becomes that token
  kIsText,  // no text becomes such a token
};

// Immutable; thread-safe.
class Tokenizer {
 public:
  // kUnimplemented names a model or pre-tokenizer we lack beside those we have; kInvalidArgument says what is wrong.
  static StatusOr<std::shared_ptr<const Tokenizer>> Create(TokenizerSpec spec);
  virtual ~Tokenizer() = default;

  // Adds neither BOS nor EOS. Ill-formed UTF-8 counts as U+FFFD. O(n log n) time in the length of the text.
  virtual std::vector<TokenId> Encode(std::string_view text, SpecialText specials) const = 0;
  // The segments joined; special tokens are found only where all of their text is outside content.
  virtual std::vector<TokenId> Encode(std::span<const Segment> segments) const = 0;

  // Well-formed UTF-8; control tokens and ids outside the vocabulary leave no text.
  virtual std::string Decode(std::span<const TokenId> ids) const = 0;
  // What the id adds to the text: "" for control tokens and ids outside the vocabulary. May be part of a character.
  // Lives as long as the tokenizer.
  virtual std::string_view TextBytes(TokenId id) const = 0;
  // As TextBytes, but control tokens show their spelling.
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  virtual bool IsControl(TokenId id) const = 0;
  virtual std::optional<TokenId> Find(std::string_view special_text) const = 0;  // of control and user-defined tokens

  virtual uint32_t vocab_size() const = 0;
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  // Ids that end an answer, EOS among them; sorted.
  virtual const std::vector<TokenId>& stop_ids() const = 0;
};

}  // namespace millrace::recipe
