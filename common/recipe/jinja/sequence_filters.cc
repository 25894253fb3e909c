#include "common/recipe/jinja/sequence_filters.h"

#include <algorithm>

#include "common/recipe/jinja/failure.h"

namespace millrace::recipe::jinja {
namespace {

// item.a.0.b for attribute "a.0.b"; the item itself without one.
Value AttributePath(const Value& item, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return item;
  if (attribute->integer()) return GetItem(item, *attribute);
  const std::string path = attribute->ToText().bytes();
  Value value = item;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    const std::string part = path.substr(start, end - start);
    const bool is_number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = is_number ? GetItem(value, Value(int64_t{std::stol(part)})) : GetItem(value, Value::Literal(part));
    start = end + 1;
  }
  return value;
}

Value FoldCase(const Value& value, bool case_sensitive) {
  if (const Text* text = value.text(); text != nullptr && !case_sensitive) return MapCase(*text, false);
  return value;
}

Value Batch(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const int64_t size = a.Integer(0, "linecount", 1);
  if (size < 1) Fail(FailureKind::kValue, "batch needs a positive size");
  const Value* fill = a.Find(1, "fill_with");
  List out;
  List row;
  for (const Value& item : Iterate(v)) {
    row.items.push_back(item);
    if (static_cast<int64_t>(row.items.size()) == size) out.items.emplace_back(std::exchange(row, List()));
  }
  if (!row.items.empty()) {
    while (fill != nullptr && static_cast<int64_t>(row.items.size()) < std::min<int64_t>(size, 1 << 16)) {
      row.items.push_back(*fill);
    }
    out.items.emplace_back(std::move(row));
  }
  return interpreter.NewList(std::move(out));
}

Value DictSort(Interpreter& interpreter, const Value& v, const Arguments& a) {
  if (v.dict() == nullptr) Fail(FailureKind::kType, "dictsort needs a mapping");
  const bool case_sensitive = a.Flag(0, "case_sensitive", false);
  const Value* by = a.Find(1, "by");
  const size_t position = by != nullptr && by->ToText().view() == "value" ? 1 : 0;
  const bool reverse = a.Flag(2, "reverse", false);
  std::vector<std::pair<Value, Value>> items = v.dict()->items();
  const auto key = [&](const std::pair<Value, Value>& item) {
    return FoldCase(position == 0 ? item.first : item.second, case_sensitive);
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const auto& x, const auto& y) { return reverse ? Less(key(y), key(x)) : Less(key(x), key(y)); });
  List out;
  for (const auto& [k, value] : items) out.items.emplace_back(List{.items = {k, value}, .is_tuple = true, .names = {}});
  return interpreter.NewList(std::move(out));
}

Value First(Interpreter&, const Value& v, const Arguments&) {
  const std::vector<Value> items = Iterate(v);
  return items.empty() ? Value(Undefined{"No first item, sequence was empty."}) : items.front();
}

Value Last(Interpreter&, const Value& v, const Arguments&) {
  const std::vector<Value> items = Iterate(v);
  return items.empty() ? Value(Undefined{"No last item, sequence was empty."}) : items.back();
}

Value GroupBy(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const Value* attribute = a.Find(0, "attribute");
  const Value* otherwise = a.Find(1, "default");
  const bool case_sensitive = a.Flag(2, "case_sensitive", false);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : Iterate(v)) {
    Value key = AttributePath(item, attribute);
    if (key.is_undefined() && otherwise != nullptr) key = *otherwise;
    keyed.emplace_back(std::move(key), item);
  }
  const auto folded = [&](const auto& pair) { return FoldCase(pair.first, case_sensitive); };
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const auto& x, const auto& y) { return Less(folded(x), folded(y)); });
  List out;
  for (size_t i = 0; i < keyed.size();) {
    List group;
    const size_t start = i;
    while (i < keyed.size() && Equal(folded(keyed[i]), folded(keyed[start]))) group.items.push_back(keyed[i++].second);
    out.items.emplace_back(
        List{.items = {keyed[start].first, std::move(group)}, .is_tuple = true, .names = {"grouper", "list"}});
  }
  return interpreter.NewList(std::move(out));
}

Value Join(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const Value* separator = a.Find(0, "d");
  const Value* attribute = a.Find(1, "attribute");
  const Text between = separator != nullptr ? separator->ToText() : Text();
  Text out;
  bool first = true;
  for (const Value& item : Iterate(v)) {
    if (!first) out.Append(between);
    first = false;
    out.Append(AttributePath(item, attribute).ToText());
    interpreter.Charge(1 + between.size() / 64);
  }
  return interpreter.NewText(std::move(out));
}

Value ListFilter(Interpreter& interpreter, const Value& v, const Arguments&) {
  return interpreter.NewList(List{.items = Iterate(v), .is_tuple = false, .names = {}});
}

Value Map(Interpreter& interpreter, const Value& v, const Arguments& a) {
  List out;
  const Value* attribute = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, value] : a.named) {
    if (name == "attribute") attribute = &value;
    if (name == "default") otherwise = &value;
  }
  if (attribute != nullptr) {
    for (const Value& item : Iterate(v)) {
      Value value = AttributePath(item, attribute);
      out.items.push_back(value.is_undefined() && otherwise != nullptr ? *otherwise : std::move(value));
    }
    return interpreter.NewList(std::move(out));
  }
  if (a.positional.empty()) Fail(FailureKind::kType, "map requires a filter argument");
  const std::string name = a.positional[0].ToText().bytes();
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) Fail(FailureKind::kRuntime, "No filter named '" + name + "'.");
  const Arguments rest{.positional = {a.positional.begin() + 1, a.positional.end()}, .named = a.named};
  for (const Value& item : Iterate(v)) {
    interpreter.Charge(1);
    out.items.push_back(filter(interpreter, item, rest));
  }
  return interpreter.NewList(std::move(out));
}

Value Extreme(const Value& v, const Arguments& a, bool largest) {
  const bool case_sensitive = a.Flag(0, "case_sensitive", false);
  const Value* attribute = a.Find(1, "attribute");
  const std::vector<Value> items = Iterate(v);
  if (items.empty()) return Undefined{"No aggregated item, sequence was empty."};
  const auto key = [&](const Value& item) { return FoldCase(AttributePath(item, attribute), case_sensitive); };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    if (largest ? Less(key(items[best]), key(items[i])) : Less(key(items[i]), key(items[best]))) best = i;
  }
  return items[best];
}
Value Max(Interpreter&, const Value& v, const Arguments& a) { return Extreme(v, a, true); }
Value Min(Interpreter&, const Value& v, const Arguments& a) { return Extreme(v, a, false); }

Value Reverse(Interpreter& interpreter, const Value& v, const Arguments&) {
  std::vector<Value> items = Iterate(v);
  std::reverse(items.begin(), items.end());
  if (v.text() == nullptr) return interpreter.NewList(List{.items = std::move(items), .is_tuple = false, .names = {}});
  Text out;
  for (const Value& item : items) out.Append(*item.text());
  return out;
}

// select, reject and their forms over an attribute.
Value Choose(Interpreter& interpreter, const Value& v, const Arguments& a, bool keep, bool by_attribute) {
  const size_t skip = by_attribute ? 1 : 0;
  if (a.positional.size() < skip) Fail(FailureKind::kType, "Missing parameter for attribute name");
  TestFunction test = nullptr;
  Arguments rest;
  if (a.positional.size() > skip) {
    const std::string name = a.positional[skip].ToText().bytes();
    test = FindTest(name);
    if (test == nullptr) Fail(FailureKind::kRuntime, "No test named '" + name + "'.");
    rest.positional.assign(a.positional.begin() + static_cast<std::ptrdiff_t>(skip) + 1, a.positional.end());
    rest.named = a.named;
  }
  List out;
  for (const Value& item : Iterate(v)) {
    interpreter.Charge(1);
    const Value subject = by_attribute ? AttributePath(item, &a.positional[0]) : item;
    const bool passes = test != nullptr ? test(interpreter, subject, rest) : subject.truthy();
    if (passes == keep) out.items.push_back(item);
  }
  return interpreter.NewList(std::move(out));
}
Value Select(Interpreter& i, const Value& v, const Arguments& a) { return Choose(i, v, a, true, false); }
Value Reject(Interpreter& i, const Value& v, const Arguments& a) { return Choose(i, v, a, false, false); }
Value SelectAttr(Interpreter& i, const Value& v, const Arguments& a) { return Choose(i, v, a, true, true); }
Value RejectAttr(Interpreter& i, const Value& v, const Arguments& a) { return Choose(i, v, a, false, true); }

Value Sort(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const bool reverse = a.Flag(0, "reverse", false);
  const bool case_sensitive = a.Flag(1, "case_sensitive", false);
  const Value* attribute = a.Find(2, "attribute");
  std::vector<Value> items = Iterate(v);
  interpreter.Charge(items.size() * 16);
  const auto key = [&](const Value& item) { return FoldCase(AttributePath(item, attribute), case_sensitive); };
  std::stable_sort(items.begin(), items.end(), [&](const Value& x, const Value& y) {
    return reverse ? Less(key(y), key(x)) : Less(key(x), key(y));
  });
  return interpreter.NewList(List{.items = std::move(items), .is_tuple = false, .names = {}});
}

Value Sum(Interpreter&, const Value& v, const Arguments& a) {
  const Value* attribute = a.Find(0, "attribute");
  int64_t whole = a.Integer(1, "start", 0);
  double fraction = 0;
  bool is_whole = true;
  for (const Value& item : Iterate(v)) {
    const Value value = AttributePath(item, attribute);
    RequireDefined(value);
    if (const auto i = value.integer()) {
      if (__builtin_add_overflow(whole, *i, &whole)) Fail(FailureKind::kOverflow, "integer arithmetic beyond 64 bits");
    } else if (const auto d = value.number()) {
      fraction += *d;
      is_whole = false;
    } else {
      Fail(FailureKind::kType, "unsupported operand type(s) for +: 'int' and '" + std::string(value.type_name()) + "'");
    }
  }
  return is_whole ? Value(whole) : Value(static_cast<double>(whole) + fraction);
}

Value Unique(Interpreter& interpreter, const Value& v, const Arguments& a) {
  const bool case_sensitive = a.Flag(0, "case_sensitive", false);
  const Value* attribute = a.Find(1, "attribute");
  Dict seen;
  List out;
  for (const Value& item : Iterate(v)) {
    const Value key = FoldCase(AttributePath(item, attribute), case_sensitive);
    interpreter.Charge(1 + (key.text() == nullptr ? seen.size() : 0));
    if (seen.Find(key) != nullptr) continue;
    seen.Set(key, true);
    out.items.push_back(item);
  }
  return interpreter.NewList(std::move(out));
}

struct Entry {
  std::string_view name;
  FilterFunction function;
};
constexpr Entry kFilters[] = {
    {"batch", Batch},     {"dictsort", DictSort}, {"first", First},           {"groupby", GroupBy},
    {"join", Join},       {"last", Last},         {"list", ListFilter},       {"map", Map},
    {"max", Max},         {"min", Min},           {"reject", Reject},         {"rejectattr", RejectAttr},
    {"reverse", Reverse}, {"select", Select},     {"selectattr", SelectAttr}, {"sort", Sort},
    {"sum", Sum},         {"unique", Unique},
};

}  // namespace

FilterFunction FindSequenceFilter(std::string_view name) {
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace millrace::recipe::jinja
