#pragma once
// Template source to tokens, with the whitespace rules that chat templates are written for: trim_blocks, lstrip_blocks,
// no trailing newline.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::recipe::jinja {

enum class TokenKind : uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,   // escapes resolved
  kInteger,  // decimal digits
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string text;
  uint32_t line;
};

// Throws a syntax failure.
std::vector<Token> Tokenize(std::string_view source);

// Code points that str.strip() and the regular expression \s take for space.
bool IsSpace(char32_t c);

}  // namespace millrace::recipe::jinja
