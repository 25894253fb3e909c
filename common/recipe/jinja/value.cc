#include "common/recipe/jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "common/recipe/jinja/failure.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::jinja {
namespace {

bool IsPrintable(char32_t c) {
  return c >= 0x20 && c != 0x7F && !(c >= 0x80 && c <= 0xA0) && c != 0xAD && !(c >= 0x2028 && c <= 0x202E) &&
         !(c >= 0x200B && c <= 0x200F) && c != 0xFEFF && !(c >= 0xE000 && c <= 0xF8FF) && c != 0x3000 &&
         !(c >= 0x2000 && c <= 0x200A);
}

std::string HexEscape(char32_t c) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const int width = c <= 0xFF ? 2 : c <= 0xFFFF ? 4 : 8;
  std::string out = c <= 0xFF ? "\\x" : c <= 0xFFFF ? "\\u" : "\\U";
  for (int shift = 4 * (width - 1); shift >= 0; shift -= 4) out += kDigits[(c >> shift) & 0xF];
  return out;
}

Text QuotedText(const Text& text) {
  const bool double_quotes =
      text.view().find('\'') != std::string_view::npos && text.view().find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  Text out;
  out.Append(std::string_view(&quote, 1), false);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.view(), at);
    const char32_t c = step.codepoint;
    const bool content = text.is_content(at);
    if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out.Append(std::string("\\") + static_cast<char>(c), content);
    } else if (c == '\n') {
      out.Append("\\n", content);
    } else if (c == '\r') {
      out.Append("\\r", content);
    } else if (c == '\t') {
      out.Append("\\t", content);
    } else if (!IsPrintable(c)) {
      out.Append(HexEscape(c), content);
    } else {
      out.AppendPart(text, at, step.length);
    }
    at += step.length;
  }
  out.Append(std::string_view(&quote, 1), false);
  return out;
}

Text ListRepr(const List& list) {
  Text out = Text::Literal(list.is_tuple ? "(" : "[");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.Append(", ", false);
    out.Append(list.items[i].Repr());
  }
  if (list.is_tuple && list.items.size() == 1) out.Append(",", false);
  out.Append(list.is_tuple ? ")" : "]", false);
  return out;
}

Text DictRepr(const Dict& dict) {
  Text out = Text::Literal("{");
  bool first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!first) out.Append(", ", false);
    first = false;
    out.Append(key.Repr());
    out.Append(": ", false);
    out.Append(value.Repr());
  }
  out.Append("}", false);
  return out;
}

[[noreturn]] void FailOrder(const Value& a, const Value& b) {
  Fail(FailureKind::kType, "'<' not supported between instances of '" + std::string(a.type_name()) + "' and '" +
                               std::string(b.type_name()) + "'");
}

void CheckDepth(uint32_t depth) {
  constexpr uint32_t kMaxDepth = 200;
  if (depth > kMaxDepth) Fail(FailureKind::kLimit, "a value is nested deeper than 200 levels");
}

bool ListsEqual(const List& a, const List& b) {
  if (a.items.size() != b.items.size() || a.is_tuple != b.is_tuple) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equal(a.items[i], b.items[i])) return false;
  }
  return true;
}

bool DictsEqual(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items()) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other)) return false;
  }
  return true;
}

}  // namespace

std::string_view FailureName(FailureKind kind) {
  static constexpr std::string_view kNames[] = {
      "TemplateSyntaxError", "TemplateError",        "UndefinedError",    "TypeError",     "ValueError",
      "SecurityError",       "TemplateRuntimeError", "ZeroDivisionError", "OverflowError", "LimitError"};
  return kNames[static_cast<size_t>(kind)];
}

Value Object::Call(Interpreter&, const Arguments&) {
  Fail(FailureKind::kType, "'" + std::string(type_name()) + "' object is not callable");
}

std::optional<Value> Object::Attribute(std::string_view) { return std::nullopt; }

Value::Value(List l) {
  l.depth = 1;
  for (const Value& item : l.items) l.depth = std::max(l.depth, item.depth() + 1);
  CheckDepth(l.depth);
  data_ = std::make_shared<const List>(std::move(l));
}

Value::Value(Dict d) {
  d.depth_ = 1;
  for (const auto& [key, value] : d.items_) d.depth_ = std::max({d.depth_, key.depth() + 1, value.depth() + 1});
  CheckDepth(d.depth_);
  data_ = std::make_shared<const Dict>(std::move(d));
}

uint32_t Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth();
  if (const Object* o = object()) return o->depth();
  return 0;
}

void Dict::Set(const Value& key, Value value) {
  if (const Text* text = key.text()) {
    const auto [it, added] = by_text_.try_emplace(text->bytes(), items_.size());
    if (added) {
      items_.emplace_back(key, std::move(value));
    } else {
      items_[it->second].second = std::move(value);
    }
    return;
  }
  if (key.list() != nullptr && !key.list()->is_tuple) Fail(FailureKind::kType, "unhashable type: 'list'");
  if (key.dict() != nullptr) Fail(FailureKind::kType, "unhashable type: 'dict'");
  for (auto& [existing, old] : items_) {
    if (Equal(existing, key)) {
      old = std::move(value);
      return;
    }
  }
  items_.emplace_back(key, std::move(value));
}

const Value* Dict::Find(std::string_view key) const {
  const auto it = by_text_.find(key);
  return it == by_text_.end() ? nullptr : &items_[it->second].second;
}

const Value* Dict::Find(const Value& key) const {
  if (const Text* text = key.text()) return Find(text->view());
  if (items_.size() == by_text_.size()) return nullptr;
  for (const auto& [existing, value] : items_) {
    if (existing.text() == nullptr && Equal(existing, key)) return &value;
  }
  return nullptr;
}

std::optional<int64_t> Value::integer() const {
  if (const auto* i = std::get_if<int64_t>(&data_)) return *i;
  if (const auto* b = std::get_if<bool>(&data_)) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* d = std::get_if<double>(&data_)) return *d;
  if (const auto i = integer()) return static_cast<double>(*i);
  return std::nullopt;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const auto n = number()) return *n != 0;
  if (const Text* t = text()) return !t->empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return d->size() > 0;
  return true;
}

Text Value::ToText() const {
  if (const Text* t = text()) return *t;
  if (is_undefined()) return Text();
  return Repr();
}

Text Value::Repr() const {
  if (is_undefined()) return Text::Literal("Undefined");
  if (is_none()) return Text::Literal("None");
  if (is_bool()) return Text::Literal(boolean() ? "True" : "False");
  if (const auto* i = std::get_if<int64_t>(&data_)) return Text::Literal(std::to_string(*i));
  if (const auto* d = std::get_if<double>(&data_)) return Text::Literal(FormatDouble(*d));
  if (const BigInteger* b = big_integer()) return Text::Literal(b->digits);
  if (const Text* t = text()) return QuotedText(*t);
  if (const List* l = list()) return ListRepr(*l);
  if (const Dict* d = dict()) return DictRepr(*d);
  return Text::Literal("<" + std::string(object()->type_name()) + ">");
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer() || big_integer() != nullptr) return "int";
  if (is_double()) return "float";
  if (text() != nullptr) return "str";
  if (list() != nullptr) return list()->is_tuple ? "tuple" : "list";
  if (dict() != nullptr) return "dict";
  return object()->type_name();
}

std::string Value::Description() const {
  if (is_none()) return "None";
  return std::string(type_name()) + " object";
}

bool Equal(const Value& a, const Value& b) {
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x == *y;
  if (const auto x = a.number(), y = b.number(); x && y) return *x == *y;
  if (const Text *x = a.text(), *y = b.text(); x != nullptr && y != nullptr) return x->view() == y->view();
  if (const List *x = a.list(), *y = b.list(); x != nullptr && y != nullptr) return ListsEqual(*x, *y);
  if (const Dict *x = a.dict(), *y = b.dict(); x != nullptr && y != nullptr) return DictsEqual(*x, *y);
  if (const BigInteger *x = a.big_integer(), *y = b.big_integer(); x != nullptr && y != nullptr) {
    return x->digits == y->digits;
  }
  if (a.object() != nullptr || b.object() != nullptr) return a.object() == b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool Less(const Value& a, const Value& b) {
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x < *y;
  if (const auto x = a.number(), y = b.number(); x && y) return *x < *y;
  // Bytes of UTF-8 order as code points do.
  if (const Text *x = a.text(), *y = b.text(); x != nullptr && y != nullptr) return x->view() < y->view();
  const List* x = a.list();
  const List* y = b.list();
  if (x == nullptr || y == nullptr || x->is_tuple != y->is_tuple) FailOrder(a, b);
  for (size_t i = 0; i < x->items.size() && i < y->items.size(); ++i) {
    if (!Equal(x->items[i], y->items[i])) return Less(x->items[i], y->items[i]);
  }
  return x->items.size() < y->items.size();
}

std::string FormatDouble(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const double magnitude = std::fabs(value);
  const bool scientific = value != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  std::string text(buffer.data(), end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

const Value* Arguments::Find(size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

bool Arguments::Flag(size_t position, std::string_view name, bool otherwise) const {
  const Value* value = Find(position, name);
  return value != nullptr ? value->truthy() : otherwise;
}

int64_t Arguments::Integer(size_t position, std::string_view name, int64_t otherwise) const {
  const Value* value = Find(position, name);
  if (value == nullptr || value->is_none()) return otherwise;
  if (const auto i = value->integer()) return *i;
  Fail(FailureKind::kType, "'" + std::string(value->type_name()) + "' object cannot be interpreted as an integer");
}

}  // namespace millrace::recipe::jinja
