// Text by characters, as Python's str does it.

#include <algorithm>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/lexer.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::jinja {
namespace {

// Simple case mapping of Latin, Greek, Cyrillic and Armenian; other scripts stay as they are.
char32_t MapCharacter(char32_t c, bool upper) {
  if (c < 0x80) {
    if (upper) return c >= 'a' && c <= 'z' ? c - 32 : c;
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
  }
  if (upper) {
    if ((c >= 0xE0 && c <= 0xFE && c != 0xF7) || (c >= 0x3B1 && c <= 0x3C9 && c != 0x3C2) ||
        (c >= 0x430 && c <= 0x44F)) {
      return c - 32;
    }
    if (c == 0x3C2) return 0x3A3;
    if (c == 0xFF) return 0x178;
    if (c >= 0x450 && c <= 0x45F) return c - 80;
    if (c >= 0x561 && c <= 0x586) return c - 48;
  } else {
    if ((c >= 0xC0 && c <= 0xDE && c != 0xD7) || (c >= 0x391 && c <= 0x3A9) || (c >= 0x410 && c <= 0x42F)) {
      return c + 32;
    }
    if (c == 0x178) return 0xFF;
    if (c >= 0x400 && c <= 0x40F) return c + 80;
    if (c >= 0x531 && c <= 0x556) return c + 48;
  }
  const bool even_is_upper = (c >= 0x100 && c <= 0x137 && c != 0x130 && c != 0x131) || (c >= 0x14A && c <= 0x177) ||
                             (c >= 0x460 && c <= 0x481) || (c >= 0x48A && c <= 0x4BF) || (c >= 0x4D0 && c <= 0x52F) ||
                             (c >= 0x1E00 && c <= 0x1E95) || (c >= 0x1EA0 && c <= 0x1EFF);
  if (even_is_upper) return upper ? c & ~char32_t{1} : c | 1;
  if (c >= 0x1C4 && c <= 0x1CC) {  // letters of three cases
    const char32_t first = 0x1C4 + (c - 0x1C4) / 3 * 3;
    return upper ? first : first + 2;
  }
  const bool odd_is_upper = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17E);
  if (odd_is_upper) return upper ? (c % 2 == 0 ? c - 1 : c) : (c % 2 == 1 ? c + 1 : c);
  return c;
}

bool IsLetter(char32_t c) {
  return c < 0x80 ? (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') : !IsSpace(c) && c >= 0xAA;
}

// The Greek sigma that ends a word has a lower case of its own.
bool EndsWord(const Text& text, size_t at, size_t length) {
  size_t before = at;
  while (before > 0 && (static_cast<uint8_t>(text.bytes()[--before]) & 0xC0) == 0x80) {
  }
  const bool follows = before < at && IsLetter(NextUtf8(text.view(), before).codepoint);
  const size_t after = at + length;
  return follows && (after == text.size() || !IsLetter(NextUtf8(text.view(), after).codepoint));
}

void AppendMapped(const Text& text, size_t at, const Utf8Step& step, bool upper, Text& out) {
  constexpr char32_t kSigma = 0x3A3;
  constexpr char32_t kDottedI = 0x130;
  const char32_t mapped = MapCharacter(step.codepoint, upper);
  if (upper && step.codepoint == 0xDF) {
    out.Append("SS", text.is_content(at));
  } else if (!upper && step.codepoint == kDottedI) {
    out.Append("i\u0307", text.is_content(at));
  } else if (!upper && step.codepoint == kSigma && EndsWord(text, at, step.length)) {
    out.Append("\u03C2", text.is_content(at));
  } else if (mapped == step.codepoint) {
    out.AppendPart(text, at, step.length);
  } else {
    std::string bytes;
    AppendUtf8(mapped, bytes);
    out.Append(bytes, text.is_content(at));
  }
}

bool InSet(const Text* characters, std::string_view character, char32_t c) {
  if (characters == nullptr) return IsSpace(c);
  return characters->view().find(character) != std::string_view::npos;
}

}  // namespace

std::vector<size_t> CharacterStarts(std::string_view text) {
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += NextUtf8(text, at).length) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

int64_t CharacterCount(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

Text MapCase(const Text& text, bool upper) {
  Text out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.view(), at);
    AppendMapped(text, at, step, upper, out);
    at += step.length;
  }
  return out;
}

bool HasCase(char32_t c, bool upper) { return MapCharacter(c, !upper) != c; }

Text Capitalize(const Text& text) {
  if (text.empty()) return text;
  const Utf8Step first = NextUtf8(text.view(), 0);
  Text out;
  AppendMapped(text, 0, first, true, out);
  for (size_t at = first.length; at < text.size();) {
    const Utf8Step step = NextUtf8(text.view(), at);
    AppendMapped(text, at, step, false, out);
    at += step.length;
  }
  return out;
}

Text TitleCase(const Text& text) {
  Text out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.view(), at);
    AppendMapped(text, at, step, !inside, out);
    inside = IsLetter(step.codepoint);
    at += step.length;
  }
  return out;
}

Text Strip(const Text& text, const Text* characters, bool left, bool right) {
  const std::vector<size_t> starts = CharacterStarts(text.view());
  size_t first = 0;
  size_t last = starts.size() - 1;
  const auto strippable = [&](size_t i) {
    const std::string_view character = text.view().substr(starts[i], starts[i + 1] - starts[i]);
    return InSet(characters, character, NextUtf8(character, 0).codepoint);
  };
  while (left && first < last && strippable(first)) ++first;
  while (right && last > first && strippable(last - 1)) --last;
  return text.Part(starts[first], starts[last] - starts[first]);
}

Text Replace(const Text& text, std::string_view from, const Text& to, int64_t count) {
  Text out;
  size_t at = 0;
  if (from.empty()) {
    const std::vector<size_t> starts = CharacterStarts(text.view());
    for (size_t i = 0; i < starts.size() && count != 0; ++i, --count) {
      out.Append(to);
      at = i + 1 < starts.size() ? starts[i + 1] : text.size();
      out.AppendPart(text, starts[i], at - starts[i]);
    }
    out.AppendPart(text, at, text.size() - at);
    return out;
  }
  while (count != 0) {
    const size_t found = text.view().find(from, at);
    if (found == std::string_view::npos) break;
    out.AppendPart(text, at, found - at);
    out.Append(to);
    at = found + from.size();
    --count;
  }
  out.AppendPart(text, at, text.size() - at);
  return out;
}

Text Repeat(const Text& text, int64_t count) {
  Text out;
  for (int64_t i = 0; i < count; ++i) out.Append(text);
  return out;
}

}  // namespace millrace::recipe::jinja
