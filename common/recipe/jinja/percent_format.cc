// The % operator of text, as Python's printf-style formatting. Independent of the locale.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"

namespace millrace::recipe::jinja {
namespace {

struct Conversion {
  std::string flags;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// The conversion after the "%" at `at`; moves `at` behind it.
Conversion ParseConversion(std::string_view format, size_t& at) {
  Conversion c;
  constexpr int64_t kMaxWidth = 10000;
  const auto number = [&] {
    int64_t n = 0;
    while (at < format.size() && format[at] >= '0' && format[at] <= '9') {
      n = std::min<int64_t>(n * 10 + (format[at++] - '0'), kMaxWidth);
    }
    return n;
  };
  while (at < format.size() && std::string_view("-+ 0#").find(format[at]) != std::string_view::npos) {
    c.flags += format[at++];
  }
  c.width = number();
  if (at < format.size() && format[at] == '.') {
    ++at;
    c.precision = number();
  }
  if (at >= format.size()) Fail(FailureKind::kValue, "incomplete format");
  c.type = format[at++];
  return c;
}

std::string Upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

// Digits without a sign.
std::string WholeDigits(const Conversion& c, uint64_t magnitude) {
  const int base = c.type == 'o' ? 8 : c.type == 'x' || c.type == 'X' ? 16 : 10;
  std::array<char, 64> buffer;
  std::string digits(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base).ptr);
  const auto least = static_cast<size_t>(std::max<int64_t>(c.precision, 0));
  if (digits.size() < least) digits.insert(0, least - digits.size(), '0');
  if (c.flags.find('#') != std::string::npos && base != 10) digits.insert(0, base == 16 ? "0x" : "0o");
  return digits;
}

std::string FractionDigits(const Conversion& c, double magnitude) {
  const char type = static_cast<char>(c.type | 0x20);
  const auto format = type == 'e'   ? std::chars_format::scientific
                      : type == 'f' ? std::chars_format::fixed
                                    : std::chars_format::general;
  std::string digits(static_cast<size_t>(std::max<int64_t>(c.precision, 6)) + 400, '\0');
  const int precision = c.precision < 0 ? 6 : static_cast<int>(c.precision);
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), magnitude, format, precision).ptr;
  digits.resize(static_cast<size_t>(end - digits.data()));
  return digits;
}

std::string ConvertedNumber(const Conversion& c, const Value& value) {
  const auto number = value.number();
  if (!number) {
    Fail(FailureKind::kType,
         std::string("%") + c.type + " format: a real number is required, not " + std::string(value.type_name()));
  }
  const auto has = [&](char flag) { return c.flags.find(flag) != std::string::npos; };
  std::string digits;
  bool negative = std::signbit(*number);
  if (std::string_view("dioxX").find(c.type) != std::string_view::npos) {
    if (!value.integer() && !(std::fabs(*number) < 9e18)) Fail(FailureKind::kOverflow, "a number is too large");
    const int64_t whole = value.integer() ? *value.integer() : static_cast<int64_t>(*number);
    negative = whole < 0;
    digits = WholeDigits(c, negative ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole));
  } else if (std::string_view("eEfFgG").find(c.type) != std::string_view::npos) {
    digits = FractionDigits(c, std::fabs(*number));
  } else {
    Fail(FailureKind::kValue, std::string("unsupported format character '") + c.type + "'");
  }
  if (c.type >= 'A' && c.type <= 'Z') digits = Upper(std::move(digits));
  const std::string sign = negative ? "-" : has('+') ? "+" : has(' ') ? " " : "";
  const auto width = static_cast<size_t>(c.width);
  const size_t padding = width - std::min(width, sign.size() + digits.size());
  if (has('-')) return sign + digits + std::string(padding, ' ');
  return has('0') ? sign + std::string(padding, '0') + digits : std::string(padding, ' ') + sign + digits;
}

Text Converted(const Conversion& c, const Value& value) {
  if (c.type == 's' || c.type == 'r') {
    Text text = c.type == 's' ? value.ToText() : value.Repr();
    const std::vector<size_t> starts = CharacterStarts(text.view());
    if (c.precision >= 0 && static_cast<size_t>(c.precision) + 1 < starts.size()) {
      text = text.Part(0, starts[static_cast<size_t>(c.precision)]);
    }
    const auto padding = static_cast<size_t>(std::max<int64_t>(0, c.width - CharacterCount(text.view())));
    if (c.flags.find('-') != std::string::npos) {
      text.Append(std::string(padding, ' '), false);
      return text;
    }
    Text padded = Text::Literal(std::string(padding, ' '));
    padded.Append(text);
    return padded;
  }
  return Text::Literal(ConvertedNumber(c, value));
}

}  // namespace

Value PercentFormat(Interpreter& interpreter, const Text& format, const Value& values) {
  const List* list = values.list();
  const bool is_tuple = list != nullptr && list->is_tuple;
  size_t next = 0;
  Text out;
  for (size_t at = 0; at < format.size();) {
    const size_t percent = std::min(format.view().find('%', at), format.size());
    out.AppendPart(format, at, percent - at);
    at = percent + 1;
    if (percent == format.size()) break;
    if (at < format.size() && format.view()[at] == '%') {
      out.Append("%", false);
      ++at;
      continue;
    }
    const Conversion conversion = ParseConversion(format.view(), at);
    if (next >= (is_tuple ? list->items.size() : 1)) {
      Fail(FailureKind::kType, "not enough arguments for format string");
    }
    out.Append(Converted(conversion, is_tuple ? list->items[next] : values));
    ++next;
  }
  if (next < (is_tuple ? list->items.size() : values.dict() != nullptr ? 0 : 1)) {
    Fail(FailureKind::kType, "not all arguments converted during string formatting");
  }
  return interpreter.NewText(std::move(out));
}

}  // namespace millrace::recipe::jinja
