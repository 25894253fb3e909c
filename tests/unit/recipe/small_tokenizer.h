#pragma once
// A vocabulary of the 256 bytes, a few merges and control tokens.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/recipe/tokenizer.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::test {

// The id of a byte is its value.
inline TokenId ByteId(char byte) { return static_cast<uint8_t>(byte); }

inline constexpr TokenId kHe = 256;
inline constexpr TokenId kLl = 257;
inline constexpr TokenId kHell = 258;
inline constexpr TokenId kEnd = 259;
inline constexpr TokenId kStart = 260;
inline constexpr TokenId kThink = 261;

inline TokenizerSpec SmallSpec() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
    AppendUtf8(printable ? static_cast<char32_t>(b) : next++, spec.tokens.emplace_back());
  }
  for (const char* text : {"he", "ll", "hell"}) spec.tokens.push_back(text);
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  for (const char* text : {"<|end|>", "<|start|>"}) {
    spec.tokens.push_back(text);
    spec.types.push_back(TokenType::kControl);
  }
  spec.tokens.push_back("</think>");
  spec.types.push_back(TokenType::kUserDefined);
  spec.merges = {"h e", "l l", "he ll"};
  spec.eos = kEnd;
  return spec;
}

inline std::shared_ptr<const Tokenizer> SmallTokenizer() {
  auto made = Tokenizer::Create(SmallSpec());
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *made;
}

}  // namespace millrace::recipe::test
