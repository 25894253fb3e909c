#include "common/recipe/utf8.h"

namespace millrace::recipe {

Utf8Step NextUtf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {Utf8Kind::kValid, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kInvalid, 1, 0};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  char32_t codepoint = lead & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {Utf8Kind::kIncomplete, i, 0};
    const uint8_t next = byte(at + i);
    if (next < low || next > high) return {Utf8Kind::kInvalid, i, 0};
    low = 0x80;
    high = 0xBF;
    codepoint = (codepoint << 6) | (next & 0x3FU);
  }
  return {Utf8Kind::kValid, length, codepoint};
}

bool IsValidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text, at);
    if (step.kind != Utf8Kind::kValid) return false;
    at += step.length;
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = NextUtf8(bytes, at);
    out += step.kind == Utf8Kind::kValid ? bytes.substr(at, step.length) : kReplacementCharacter;
    at += step.length;
  }
  return out;
}

void AppendUtf8(char32_t c, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace millrace::recipe
