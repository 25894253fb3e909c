#include "common/recipe/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "common/recipe/jinja/failure.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "~", "%", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c) || (static_cast<unsigned char>(c) & 0x80) != 0; }

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Where the run of spaces that ends `text` starts, not before `from`.
size_t SpaceTail(std::string_view text, size_t from) {
  size_t start = text.size();
  for (size_t at = from; at < text.size();) {
    const Utf8Step step = NextUtf8(text, at);
    if (step.kind == Utf8Kind::kValid && IsSpace(step.codepoint)) {
      start = std::min(start, at);
    } else {
      start = text.size();
    }
    at += step.length;
  }
  return start;
}

class Scanner {
 public:
  explicit Scanner(std::string_view source) : source_(NormalizeNewlines(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) Outside();
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void FailHere(const std::string& what) const {
    Fail(FailureKind::kSyntax, what + " (line " + std::to_string(line_) + ")");
  }

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  bool At(std::string_view text) const { return std::string_view(source_).substr(at_, text.size()) == text; }

  void Advance(size_t count) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                              source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  void SkipSpaces() {
    while (at_ < source_.size()) {
      const Utf8Step step = NextUtf8(source_, at_);
      if (step.kind != Utf8Kind::kValid || !IsSpace(step.codepoint)) break;
      Advance(step.length);
    }
  }

  // Data up to the next tag, then the tag.
  void Outside() {
    size_t tag = at_;
    while (tag < source_.size()) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) tag = source_.size();
      if (tag + 1 < source_.size() && (source_[tag + 1] == '%' || source_[tag + 1] == '{' || source_[tag + 1] == '#')) {
        break;
      }
      if (tag < source_.size()) ++tag;
    }
    std::string data = source_.substr(at_, tag - at_);
    Advance(tag - at_);
    if (at_ == source_.size()) {
      if (!data.empty()) Add(TokenKind::kData, std::move(data));
      return;
    }
    const char kind = source_[at_ + 1];
    const char sign = at_ + 2 < source_.size() ? source_[at_ + 2] : '\0';
    StripBeforeTag(data, kind, sign);
    if (!data.empty()) Add(TokenKind::kData, std::move(data));
    Advance(sign == '-' || (sign == '+' && kind != '{') ? 3 : 2);
    if (kind == '#') {
      Comment();
    } else if (kind == '{') {
      Add(TokenKind::kVariableBegin, "");
      Inside("}}", TokenKind::kVariableEnd);
    } else if (!Raw()) {
      Add(TokenKind::kBlockBegin, "");
      Inside("%}", TokenKind::kBlockEnd);
    }
  }

  void StripBeforeTag(std::string& data, char kind, char sign) {
    if (sign == '-') {
      data.resize(SpaceTail(data, 0));
    } else if (kind != '{' && sign != '+') {
      const size_t newline = data.rfind('\n');
      const size_t line_start = newline == std::string::npos ? 0 : newline + 1;
      if ((newline != std::string::npos || line_starting_) && SpaceTail(data, line_start) == line_start) {
        data.resize(line_start);
      }
    }
  }

  // After a tag: eats what its end sign says. `trims` = a newline after it belongs to it.
  void AfterTag(char sign, bool trims) {
    line_starting_ = false;
    if (sign == '-') {
      const size_t start = at_;
      SkipSpaces();
      line_starting_ = at_ > start && source_[at_ - 1] == '\n';
    } else if (sign != '+' && trims && At("\n")) {
      Advance(1);
      line_starting_ = true;
    }
  }

  void Comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) FailHere("Missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    Advance(end + 2 - at_);
    AfterTag(sign, true);
  }

  // Matches {% NAME %} from the position after its "{%" sign; the position after the name's tag and its end sign.
  bool MatchSimpleTag(size_t from, std::string_view name, size_t& end, char& sign) const {
    const auto skip = [&](size_t i) {
      while (i < source_.size() && (source_[i] == ' ' || source_[i] == '\t' || source_[i] == '\n')) ++i;
      return i;
    };
    size_t i = skip(from);
    if (source_.compare(i, name.size(), name) != 0) return false;
    i = skip(i + name.size());
    sign = '\0';
    if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) sign = source_[i++];
    if (source_.compare(i, 2, "%}") != 0) return false;
    end = i + 2;
    return true;
  }

  bool Raw() {
    size_t end = 0;
    char sign = '\0';
    if (!MatchSimpleTag(at_, "raw", end, sign)) return false;
    Advance(end - at_);
    AfterTag(sign, true);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char begin_sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const size_t name = tag + (begin_sign == '-' || begin_sign == '+' ? 3 : 2);
      if (!MatchSimpleTag(name, "endraw", end, sign)) continue;
      std::string data = source_.substr(at_, tag - at_);
      StripBeforeTag(data, '%', begin_sign);
      if (!data.empty()) Add(TokenKind::kData, std::move(data));
      Advance(end - at_);
      AfterTag(sign, true);
      return true;
    }
    FailHere("Missing end of raw directive");
  }

  void Inside(std::string_view closing, TokenKind end_kind) {
    size_t depth = 0;  // of brackets: "}}" may end two dicts
    while (true) {
      SkipSpaces();
      if (at_ >= source_.size()) FailHere("the template ends inside a tag");
      if (depth == 0) {
        const char sign = source_[at_] == '-' || source_[at_] == '+' ? source_[at_] : '\0';
        if (source_.compare(at_ + (sign != '\0' ? 1 : 0), 2, closing) == 0 && !(sign == '+' && closing == "}}")) {
          Advance(sign != '\0' ? 3 : 2);
          Add(end_kind, "");
          AfterTag(sign, end_kind == TokenKind::kBlockEnd);
          return;
        }
      }
      One(depth);
    }
  }

  void One(size_t& depth) {
    const char c = source_[at_];
    if (IsNameStart(c)) {
      size_t end = at_;
      while (end < source_.size() && IsNamePart(source_[end])) ++end;
      Add(TokenKind::kName, source_.substr(at_, end - at_));
      Advance(end - at_);
    } else if (IsDigit(c)) {
      Number();
    } else if (c == '"' || c == '\'') {
      String(c);
    } else {
      Operator(depth);
    }
  }

  void Operator(size_t& depth) {
    for (const std::string_view op : kOperators) {
      if (!At(op)) continue;
      if (op == "(" || op == "[" || op == "{") ++depth;
      if (op == ")" || op == "]" || op == "}") {
        if (depth == 0) FailHere("unexpected '" + std::string(op) + "'");
        --depth;
      }
      Add(TokenKind::kOperator, std::string(op));
      Advance(op.size());
      return;
    }
    FailHere("unexpected char '" + source_.substr(at_, NextUtf8(source_, at_).length) + "'");
  }

  // Digits of a base, single underscores between them left out.
  std::string Digits(int base) {
    std::string digits;
    while (at_ < source_.size()) {
      const char c = source_[at_];
      const bool underscore = c == '_' && !digits.empty() && at_ + 1 < source_.size() && IsNamePart(source_[at_ + 1]);
      int value = 0;
      if (!underscore && std::from_chars(&c, &c + 1, value, base).ec != std::errc()) break;
      if (!underscore) digits += c;
      ++at_;
    }
    return digits;
  }

  void Number() {
    for (const auto& [prefix, base] : {std::pair("0x", 16), {"0X", 16}, {"0b", 2}, {"0B", 2}, {"0o", 8}, {"0O", 8}}) {
      if (!At(prefix)) continue;
      at_ += 2;
      const std::string digits = Digits(base);
      uint64_t value = 0;
      const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
      if (parsed.ec != std::errc() || digits.empty()) FailHere("a number is malformed or too large");
      Add(TokenKind::kInteger, std::to_string(value));
      return;
    }
    std::string text = Digits(10);
    TokenKind kind = TokenKind::kInteger;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && IsDigit(source_[at_ + 1])) {
      ++at_;
      text += "." + Digits(10);
      kind = TokenKind::kFloat;
    }
    if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      size_t digit = at_ + 1;
      if (digit < source_.size() && (source_[digit] == '+' || source_[digit] == '-')) ++digit;
      if (digit < source_.size() && IsDigit(source_[digit])) {
        text += source_.substr(at_, digit - at_);
        at_ = digit;
        text += Digits(10);
        kind = TokenKind::kFloat;
      }
    }
    Add(kind, std::move(text));
  }

  void String(char quote) {
    std::string value;
    Advance(1);
    while (true) {
      if (at_ >= source_.size()) FailHere("a string does not end");
      const char c = source_[at_];
      if (c == quote) break;
      if (c == '\\') {
        Escape(value);
      } else {
        value += c;
        Advance(1);
      }
    }
    Advance(1);
    Add(TokenKind::kString, std::move(value));
  }

  void Escape(std::string& value) {
    if (at_ + 1 >= source_.size()) FailHere("a string does not end");
    const char c = source_[at_ + 1];
    static constexpr std::string_view kNames = "ntrbfav0\\'\"\n";
    static constexpr std::string_view kValues("\n\t\r\b\f\a\v\0\\'\"", 11);
    if (c == '\n') {  // a line continued
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t code = 0;
      const char* digits = source_.data() + std::min(at_ + 2, source_.size());
      const char* limit = source_.data() + std::min(at_ + 2 + width, source_.size());
      const auto parsed = std::from_chars(digits, limit, code, 16);
      if (parsed.ec != std::errc() || parsed.ptr != digits + width) FailHere("a truncated \\" + std::string(1, c));
      const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
      AppendUtf8(surrogate || code > 0x10FFFF ? 0xFFFD : code, value);
      Advance(width);
    } else if (const size_t i = kNames.find(c); i < kValues.size()) {
      value += kValues[i];
    } else {
      value += '\\';
      value += c;
    }
    Advance(2);
  }

  const std::string source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::vector<Token> Tokenize(std::string_view source) { return Scanner(source).Run(); }

}  // namespace millrace::recipe::jinja
