// Values to and from JSON, as Python's json module writes and reads it.

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::jinja {
namespace {

void AppendUnicodeEscape(uint32_t unit, std::string& out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[(unit >> shift) & 0xF];
}

std::string EscapedCharacter(char32_t c, bool ascii_only) {
  std::string out;
  static constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  static constexpr std::string_view kLetters = "\"\\bfnrt";
  if (const size_t i = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos; i < kShort.size()) {
    out = std::string("\\") + kLetters[i];
  } else if (c < 0x20 || (ascii_only && c >= 0x7F && c <= 0xFFFF)) {
    AppendUnicodeEscape(c, out);
  } else if (ascii_only && c > 0xFFFF) {
    AppendUnicodeEscape(0xD800 + ((c - 0x10000) >> 10), out);
    AppendUnicodeEscape(0xDC00 + ((c - 0x10000) & 0x3FF), out);
  }
  return out;
}

void AppendString(const Text& text, bool ascii_only, Text& out) {
  out.Append("\"", false);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.view(), at);
    const std::string escaped = EscapedCharacter(step.codepoint, ascii_only);
    if (escaped.empty()) {
      out.AppendPart(text, at, step.length);
    } else {
      out.Append(escaped, text.is_content(at));
    }
    at += step.length;
  }
  out.Append("\"", false);
}

class Writer {
 public:
  Writer(const JsonStyle& style, Text& out) : style_(style), out_(out) {}

  void Write(const Value& value, int64_t level) {
    if (const Text* text = value.text()) {
      AppendString(*text, style_.ascii_only, out_);
    } else if (value.is_none()) {
      out_.Append("null", false);
    } else if (value.is_bool()) {
      out_.Append(value.boolean() ? "true" : "false", false);
    } else if (value.number() || value.big_integer() != nullptr) {
      out_.Append(NumberText(value), false);
    } else if (const List* list = value.list()) {
      WriteList(*list, level);
    } else if (const Dict* dict = value.dict()) {
      WriteDict(*dict, level);
    } else {
      Fail(FailureKind::kType, "Object of type " + std::string(value.type_name()) + " is not JSON serializable");
    }
  }

 private:
  static std::string NumberText(const Value& value) {
    const std::string text = value.Repr().bytes();
    if (text == "inf") return "Infinity";
    if (text == "-inf") return "-Infinity";
    return text == "nan" ? "NaN" : text;
  }

  void Break(int64_t level) {
    if (style_.indent < 0) return;
    out_.Append("\n" + std::string(static_cast<size_t>(style_.indent * level), ' '), false);
  }

  void Separate(bool first, int64_t level) {
    if (!first) {
      std::string separator = style_.item_separator;
      if (style_.indent >= 0 && separator == ", ") separator = ",";
      out_.Append(separator, false);
    }
    Break(level);
  }

  void WriteList(const List& list, int64_t level) {
    if (list.items.empty()) return out_.Append("[]", false);
    out_.Append("[", false);
    for (size_t i = 0; i < list.items.size(); ++i) {
      Separate(i == 0, level + 1);
      Write(list.items[i], level + 1);
    }
    Break(level);
    out_.Append("]", false);
  }

  void WriteKey(const Value& key) {
    if (const Text* text = key.text()) return AppendString(*text, style_.ascii_only, out_);
    if (!key.is_none() && !key.number()) {
      Fail(FailureKind::kType, "keys must be str, int, float, bool or None, not " + std::string(key.type_name()));
    }
    out_.Append("\"", false);
    Write(key, 0);
    out_.Append("\"", false);
  }

  void WriteDict(const Dict& dict, int64_t level) {
    if (dict.size() == 0) return out_.Append("{}", false);
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](auto* a, auto* b) { return Less(a->first, b->first); });
    }
    out_.Append("{", false);
    for (size_t i = 0; i < items.size(); ++i) {
      Separate(i == 0, level + 1);
      WriteKey(items[i]->first);
      out_.Append(style_.key_separator, false);
      Write(items[i]->second, level + 1);
    }
    Break(level);
    out_.Append("}", false);
  }

  const JsonStyle& style_;
  Text& out_;
};

class Reader {
 public:
  Reader(std::string_view json, bool is_content) : json_(json), is_content_(is_content) {}

  Value Document() {
    Value value = Element(0);
    Spaces();
    if (at_ != json_.size()) FailHere("Extra data");
    return value;
  }

 private:
  [[noreturn]] void FailHere(const std::string& what) const {
    Fail(FailureKind::kValue, what + ": char " + std::to_string(at_) + " of the JSON");
  }

  void Spaces() {
    while (at_ < json_.size() && std::string_view(" \t\n\r").find(json_[at_]) != std::string_view::npos) ++at_;
  }
  bool Skip(std::string_view text) {
    if (json_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  Value Element(int depth) {
    constexpr int kMaxDepth = 150;
    if (depth > kMaxDepth) FailHere("nested too deep");
    Spaces();
    if (Skip("null")) return None{};
    if (Skip("true")) return true;
    if (Skip("false")) return false;
    if (at_ >= json_.size()) FailHere("Expecting value");
    if (json_[at_] == '"') return Value(MakeText(String()));
    if (Skip("[")) return Array(depth);
    if (Skip("{")) return Object(depth);
    return Number();
  }

  Text MakeText(std::string text) const {
    return is_content_ ? Text::Content(std::move(text)) : Text::Literal(std::move(text));
  }

  Value Array(int depth) {
    List list;
    Spaces();
    if (Skip("]")) return list;
    do {
      list.items.push_back(Element(depth + 1));
      Spaces();
    } while (Skip(","));
    if (!Skip("]")) FailHere("Expecting ',' delimiter");
    return list;
  }

  Value Object(int depth) {
    Dict dict;
    Spaces();
    if (Skip("}")) return dict;
    do {
      Spaces();
      if (at_ >= json_.size() || json_[at_] != '"') FailHere("Expecting property name enclosed in double quotes");
      const Value key = MakeText(String());
      Spaces();
      if (!Skip(":")) FailHere("Expecting ':' delimiter");
      dict.Set(key, Element(depth + 1));
      Spaces();
    } while (Skip(","));
    if (!Skip("}")) FailHere("Expecting ',' delimiter");
    return dict;
  }

  uint32_t FourDigits() {
    uint32_t unit = 0;
    const std::string_view digits = json_.substr(std::min(at_, json_.size()), 4);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (digits.size() != 4 || parsed.ptr != digits.data() + 4) FailHere("Invalid \\uXXXX escape");
    at_ += 4;
    return unit;
  }

  void Escape(std::string& out) {
    if (at_ >= json_.size()) FailHere("Unterminated string");
    static constexpr std::string_view kLetters = "\"\\/bfnrt";
    static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    const char c = json_[at_++];
    if (const size_t i = kLetters.find(c); i < kLetters.size()) {
      out += kValues[i];
      return;
    }
    if (c != 'u') FailHere("Invalid \\escape");
    char32_t code = FourDigits();
    if (code >= 0xD800 && code < 0xDC00 && json_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const uint32_t low = FourDigits();
      code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : 0xFFFD;
    }
    AppendUtf8(code >= 0xD800 && code < 0xE000 ? 0xFFFD : code, out);
  }

  std::string String() {
    std::string out;
    ++at_;
    while (true) {
      if (at_ >= json_.size()) FailHere("Unterminated string");
      const char c = json_[at_++];
      if (c == '"') return out;
      if (static_cast<uint8_t>(c) < 0x20) FailHere("Invalid control character");
      if (c == '\\') {
        Escape(out);
      } else {
        out += c;
      }
    }
  }

  Value Number() {
    const size_t end = std::min(json_.find_first_not_of("+-.eE0123456789", at_), json_.size());
    const std::string_view text = json_.substr(at_, end - at_);
    if (text.empty()) FailHere("Expecting value");
    if (text.find_first_of(".eE") == std::string_view::npos) {
      int64_t whole = 0;
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), whole);
      if (parsed.ptr == text.data() + text.size()) {
        at_ = end;
        return parsed.ec == std::errc() ? Value(whole) : Value(BigInteger{std::string(text)});
      }
    }
    double number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ptr != text.data() + text.size()) FailHere("Expecting value");
    at_ = end;
    return number;
  }

  const std::string_view json_;
  const bool is_content_;
  size_t at_ = 0;
};

}  // namespace

Text ToJson(const Value& value, const JsonStyle& style) {
  Text out;
  Writer(style, out).Write(value, 0);
  return out;
}

Value FromJson(std::string_view json, bool is_content) { return Reader(json, is_content).Document(); }

}  // namespace millrace::recipe::jinja
