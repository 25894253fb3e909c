// Filters of one value: text, numbers, defaults. Those over sequences are in sequence_filters.cc.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/lexer.h"
#include "common/recipe/jinja/sequence_filters.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::jinja {
namespace {

Value Abs(Interpreter&, const Value& v, const Arguments&) {
  RequireDefined(v);
  if (const auto i = v.integer()) return *i < 0 && *i != std::numeric_limits<int64_t>::min() ? -*i : *i;
  if (const auto d = v.number()) return std::fabs(*d);
  Fail(FailureKind::kType, "bad operand type for abs(): '" + std::string(v.type_name()) + "'");
}

Value Attr(Interpreter&, const Value& v, const Arguments& a) {
  const Value* name = a.Find(0, "name");
  if (name == nullptr || name->text() == nullptr) Fail(FailureKind::kType, "attr needs a name");
  // Attributes only: a key of a mapping is none.
  if (v.dict() != nullptr) return Undefined{"'dict object' has no attribute '" + name->text()->bytes() + "'"};
  return GetAttribute(v, name->text()->view());
}

Value CapitalizeFilter(Interpreter&, const Value& v, const Arguments&) { return Capitalize(v.ToText()); }

Value Center(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const Text text = v.ToText();
  const int64_t padding = std::clamp<int64_t>(a.Integer(0, "width", 80) - CharacterCount(text.view()), 0, 1 << 20);
  const int64_t width = padding + CharacterCount(text.view());
  const int64_t left = padding / 2 + (padding & width & 1);
  Text out = Text::Literal(std::string(static_cast<size_t>(left), ' '));
  out.Append(text);
  out.Append(std::string(static_cast<size_t>(padding - left), ' '), false);
  return interpreter.NewText(std::move(out));
}

Value Default(Interpreter&, const Value& v, const Arguments& a) {
  const bool use = v.is_undefined() || (a.Flag(1, "boolean", false) && !v.truthy());
  if (!use) return v;
  const Value* otherwise = a.Find(0, "default_value");
  return otherwise != nullptr ? *otherwise : Value::Literal("");
}

Value Escape(Interpreter&, const Value& v, const Arguments&) {
  const Text text = v.ToText();
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    static constexpr std::string_view kFrom = "&<>'\"";
    static constexpr std::string_view kTo[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (const size_t k = kFrom.find(text.bytes()[i]); k < kFrom.size()) {
      out.Append(kTo[k], text.is_content(i));
    } else {
      out.AppendPart(text, i, 1);
    }
  }
  return out;
}

Value Float(Interpreter&, const Value& v, const Arguments& a) {
  if (const auto d = v.number()) return *d;
  const Value* otherwise = a.Find(0, "default");
  if (const Text* text = v.text()) {
    const Text bare = Strip(*text, nullptr, true, true);
    const std::string& s = bare.bytes();
    double value = 0;
    const auto parsed = std::from_chars(s.data(), s.data() + s.size(), value);
    if (!s.empty() && parsed.ec == std::errc() && parsed.ptr == s.data() + s.size()) return value;
  }
  return otherwise != nullptr ? *otherwise : Value(0.0);
}

Value Int(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const Value* otherwise = a.Find(0, "default");
  if (const auto i = v.integer()) return *i;
  if (const Text* text = v.text()) {
    const Text bare = Strip(*text, nullptr, true, true);
    const std::string& s = bare.bytes();
    int64_t value = 0;
    const auto base = static_cast<int>(std::clamp<int64_t>(a.Integer(1, "base", 10), 2, 36));
    const auto parsed = std::from_chars(s.data(), s.data() + s.size(), value, base);
    if (!s.empty() && parsed.ec == std::errc() && parsed.ptr == s.data() + s.size()) return value;
  }
  const Value as_float = Float(interpreter, v, {.positional = {None{}}, .named = {}});
  if (const auto d = as_float.number(); d && std::fabs(*d) < 9e18) return static_cast<int64_t>(*d);
  return otherwise != nullptr ? *otherwise : Value(int64_t{0});
}

Value FromJsonFilter(Interpreter& interpreter, const Value& v, const Arguments&) {
  const Text* text = v.text();
  if (text == nullptr) {
    Fail(FailureKind::kType, "the JSON object must be str, bytes or bytearray, not " + std::string(v.type_name()));
  }
  interpreter.Charge(text->size());
  return FromJson(text->view(), !text->empty() && text->is_content(0));
}

Value Indent(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const Value* width = a.Find(0, "width");
  Text step;
  if (width != nullptr && width->text() != nullptr) {
    step = *width->text();
  } else {
    step = Text::Literal(std::string(static_cast<size_t>(std::clamp<int64_t>(a.Integer(0, "width", 4), 0, 1000)), ' '));
  }
  const bool first = a.Flag(1, "first", false);
  const bool blank = a.Flag(2, "blank", false);
  const Text text = v.ToText();
  Text out;
  bool is_first = true;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.view().find('\n', start), text.size());
    const bool empty = end == start;
    if (is_first ? first : (blank || !empty)) out.Append(step);
    out.AppendPart(text, start, std::min(end + 1, text.size()) - start);
    is_first = false;
    start = end + 1;
  }
  return interpreter.NewText(std::move(out));
}

Value Items(Interpreter& interpreter, const Value& v, const Arguments&) {
  if (v.is_undefined()) return List();
  if (v.dict() == nullptr) Fail(FailureKind::kType, "Can only get item pairs from a mapping.");
  List list;
  for (const auto& [key, value] : v.dict()->items()) {
    list.items.emplace_back(List{.items = {key, value}, .is_tuple = true, .names = {}});
  }
  return interpreter.NewList(std::move(list));
}

Value Length(Interpreter&, const Value& v, const Arguments&) {
  if (const Text* text = v.text()) return CharacterCount(text->view());
  if (const List* list = v.list()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = v.dict()) return static_cast<int64_t>(dict->size());
  if (v.is_undefined()) return int64_t{0};
  Fail(FailureKind::kType, "object of type '" + std::string(v.type_name()) + "' has no len()");
}

Value Lower(Interpreter&, const Value& v, const Arguments&) { return MapCase(v.ToText(), false); }
Value Upper(Interpreter&, const Value& v, const Arguments&) { return MapCase(v.ToText(), true); }

// Words begin after spaces, dashes and opening brackets: not, as in the method, after every other character.
Value Title(Interpreter&, const Value& v, const Arguments&) {
  const Text text = v.ToText();
  const auto divides = [](char32_t c) {
    return IsSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
  };
  Text out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const bool between = divides(NextUtf8(text.view(), at).codepoint);
    while (end < text.size() && divides(NextUtf8(text.view(), end).codepoint) == between) {
      end += NextUtf8(text.view(), end).length;
    }
    const Text word = text.Part(at, end - at);
    const size_t first = NextUtf8(word.view(), 0).length;
    out.Append(MapCase(word.Part(0, first), true));
    out.Append(MapCase(word.Part(first, word.size() - first), false));
    at = end;
  }
  return out;
}

Value ReplaceFilter(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const Value* from = a.Find(0, "old");
  const Value* to = a.Find(1, "new");
  if (from == nullptr || to == nullptr) Fail(FailureKind::kType, "replace needs what and by what");
  return interpreter.NewText(Replace(v.ToText(), from->ToText().view(), to->ToText(), a.Integer(2, "count", -1)));
}

Value Round(Interpreter&, const Value& v, const Arguments& a) {
  RequireDefined(v);
  const auto number = v.number();
  if (!number) Fail(FailureKind::kType, "type " + std::string(v.type_name()) + " doesn't define __round__ method");
  const int64_t digits = std::clamp<int64_t>(a.Integer(0, "precision", 0), -300, 300);
  const Value* method = a.Find(1, "method");
  const std::string how = method != nullptr ? method->ToText().bytes() : "common";
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (how == "ceil") return std::ceil(*number * scale) / scale;
  if (how == "floor") return std::floor(*number * scale) / scale;
  return std::nearbyint(*number * scale) / scale;  // halves to even, as Python
}

Value Same(Interpreter&, const Value& v, const Arguments&) { return v; }
Value String(Interpreter&, const Value& v, const Arguments&) { return v.ToText(); }

Value ToJsonFilter(Interpreter& interpreter, const Value& v, const Arguments& a) {
  JsonStyle style;
  style.ascii_only = a.Flag(0, "ensure_ascii", false);
  style.indent = std::clamp<int64_t>(a.Integer(1, "indent", -1), -1, 64);
  style.sort_keys = a.Flag(3, "sort_keys", false);
  if (const Value* separators = a.Find(2, "separators"); separators != nullptr && !separators->is_none()) {
    const std::vector<Value> pair = Iterate(*separators);
    if (pair.size() != 2) Fail(FailureKind::kValue, "separators must be a pair");
    style.item_separator = pair[0].ToText().bytes();
    style.key_separator = pair[1].ToText().bytes();
  }
  return interpreter.NewText(ToJson(v, style));
}

Value Trim(Interpreter&, const Value& v, const Arguments& a) {
  const Value* characters = a.Find(0, "chars");
  if (characters == nullptr || characters->is_none()) return Strip(v.ToText(), nullptr, true, true);
  const Text set = characters->ToText();
  return Strip(v.ToText(), &set, true, true);
}

Value Truncate(Interpreter&, const Value& v, const Arguments& a) {
  const Text text = v.ToText();
  const int64_t length = a.Integer(0, "length", 255);
  const bool kill_words = a.Flag(1, "killwords", false);
  const Value* end_argument = a.Find(2, "end");
  const Text end = end_argument != nullptr ? end_argument->ToText() : Text::Literal("...");
  const int64_t leeway = a.Integer(3, "leeway", 5);
  const std::vector<size_t> starts = CharacterStarts(text.view());
  const auto count = static_cast<int64_t>(starts.size()) - 1;
  if (count <= length + leeway) return text;
  const int64_t keep = std::clamp<int64_t>(length - CharacterCount(end.view()), 0, count);
  Text out = text.Part(0, starts[static_cast<size_t>(keep)]);
  if (!kill_words) {
    const size_t space = out.view().rfind(' ');
    if (space != std::string_view::npos) out = out.Part(0, space);
  }
  out.Append(end);
  return out;
}

Value UrlEncode(Interpreter&, const Value& v, const Arguments&) {
  const Text text = v.ToText();
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text.bytes()[i]);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~/").find(static_cast<char>(c)) != std::string_view::npos;
    static constexpr char kDigits[] = "0123456789ABCDEF";
    const char escaped[] = {'%', kDigits[c >> 4], kDigits[c & 15]};
    if (plain) {
      out.AppendPart(text, i, 1);
    } else {
      out.Append(std::string_view(escaped, 3), text.is_content(i));
    }
  }
  return out;
}

Value WordCount(Interpreter&, const Value& v, const Arguments&) {
  const Text text = v.ToText();
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.view(), at);
    const bool is_word =
        !IsSpace(step.codepoint) &&
        (step.codepoint >= 0x80 || std::isalnum(static_cast<int>(step.codepoint)) != 0 || step.codepoint == '_');
    if (is_word && !inside) ++words;
    inside = is_word;
    at += step.length;
  }
  return words;
}

struct Entry {
  std::string_view name;
  FilterFunction function;
};
constexpr Entry kFilters[] = {
    {"abs", Abs},
    {"attr", Attr},
    {"capitalize", CapitalizeFilter},
    {"center", Center},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"e", Escape},
    {"escape", Escape},
    {"float", Float},
    {"from_json", FromJsonFilter},
    {"indent", Indent},
    {"int", Int},
    {"items", Items},
    {"length", Length},
    {"lower", Lower},
    {"replace", ReplaceFilter},
    {"round", Round},
    {"safe", Same},
    {"string", String},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", Upper},
    {"urlencode", UrlEncode},
    {"wordcount", WordCount},
};

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return FindSequenceFilter(name);
}

}  // namespace millrace::recipe::jinja
