#pragma once
// UTF-8 by the rules of the Unicode standard, chapter 3.9: an ill-formed sequence is replaced by one U+FFFD for each
// maximal subpart.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::recipe {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

enum class Utf8Kind : uint8_t {
  kValid,
  kInvalid,     // `length` bytes can't belong to any character
  kIncomplete,  // the text ends inside a character that more bytes may complete
};

struct Utf8Step {
  Utf8Kind kind;
  size_t length;       // bytes, at least 1
  char32_t codepoint;  // of kValid
};

// The step at `at` < text.size().
Utf8Step NextUtf8(std::string_view text, size_t at);

bool IsValidUtf8(std::string_view text);
std::string ReplaceInvalidUtf8(std::string_view bytes);
void AppendUtf8(char32_t codepoint, std::string& out);

}  // namespace millrace::recipe
