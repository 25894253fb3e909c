// Methods of text, lists and dicts.

#include <algorithm>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/lexer.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::jinja {
namespace {

using I = Interpreter;
using A = Arguments;

const Text& TextArgument(const A& a, size_t position, std::string_view name) {
  const Value* value = a.Find(position, name);
  if (value == nullptr) Fail(FailureKind::kType, "argument '" + std::string(name) + "' is missing");
  RequireDefined(*value);
  if (value->text() == nullptr) {
    Fail(FailureKind::kType, "must be str, not " + std::string(value->type_name()));
  }
  return *value->text();
}

Value StripMethod(const Value& self, const A& a, bool left, bool right) {
  const Value* characters = a.Find(0, "chars");
  const bool given = characters != nullptr && !characters->is_none();
  return Strip(*self.text(), given ? &TextArgument(a, 0, "chars") : nullptr, left, right);
}

// Runs of space divide; none at the ends.
List SplitAtSpaces(const Text& text, int64_t limit) {
  List out;
  const std::vector<size_t> starts = CharacterStarts(text.view());
  const auto is_space = [&](size_t i) { return IsSpace(NextUtf8(text.view(), starts[i]).codepoint); };
  const size_t count = starts.size() - 1;
  for (size_t i = 0; i < count;) {
    while (i < count && is_space(i)) ++i;
    if (i == count) break;
    size_t end = i;
    if (limit >= 0 && static_cast<int64_t>(out.items.size()) == limit) {
      end = count;
      while (end > i && is_space(end - 1)) --end;
      out.items.emplace_back(text.Part(starts[i], starts[end] - starts[i]));
      break;
    }
    while (end < count && !is_space(end)) ++end;
    out.items.emplace_back(text.Part(starts[i], starts[end] - starts[i]));
    i = end;
  }
  return out;
}

Value Split(I& interpreter, const Value& self, const A& a) {
  const Text& text = *self.text();
  const Value* separator = a.Find(0, "sep");
  const int64_t limit = a.Integer(1, "maxsplit", -1);
  if (separator == nullptr || separator->is_none()) return interpreter.NewList(SplitAtSpaces(text, limit));
  const Text& between = TextArgument(a, 0, "sep");
  if (between.empty()) Fail(FailureKind::kValue, "empty separator");
  List out;
  size_t start = 0;
  while (limit < 0 || static_cast<int64_t>(out.items.size()) < limit) {
    const size_t found = text.view().find(between.view(), start);
    if (found == std::string_view::npos) break;
    out.items.emplace_back(text.Part(start, found - start));
    start = found + between.size();
  }
  out.items.emplace_back(text.Part(start, text.size() - start));
  return interpreter.NewList(std::move(out));
}

Value RightSplit(I& interpreter, const Value& self, const A& a) {
  const Text& text = *self.text();
  const Value* separator = a.Find(0, "sep");
  const int64_t limit = a.Integer(1, "maxsplit", -1);
  if (limit < 0) return Split(interpreter, self, a);
  const bool at_spaces = separator == nullptr || separator->is_none();
  const Text between = at_spaces ? Text::Literal(" ") : TextArgument(a, 0, "sep");
  if (between.empty()) Fail(FailureKind::kValue, "empty separator");
  List out;
  size_t end = text.size();
  while (static_cast<int64_t>(out.items.size()) < limit && end >= between.size()) {
    const size_t found = text.view().substr(0, end).rfind(between.view());
    if (found == std::string_view::npos) break;
    out.items.emplace_back(text.Part(found + between.size(), end - found - between.size()));
    end = found;
  }
  out.items.emplace_back(text.Part(0, end));
  std::reverse(out.items.begin(), out.items.end());
  return interpreter.NewList(std::move(out));
}

Value SplitLines(I& interpreter, const Value& self, const A& a) {
  const Text& text = *self.text();
  const bool keep = a.Flag(0, "keepends", false);
  List out;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.view().find_first_of("\n\r", start), text.size());
    size_t next = std::min(end + 1, text.size());
    if (end + 1 < text.size() && text.bytes()[end] == '\r' && text.bytes()[end + 1] == '\n') ++next;
    out.items.emplace_back(text.Part(start, (keep ? next : end) - start));
    start = next;
  }
  return interpreter.NewList(std::move(out));
}

Value Affix(const Value& self, const A& a, bool at_start) {
  const Value* affix = a.Find(0, "prefix");
  if (affix == nullptr) Fail(FailureKind::kType, "startswith and endswith need an argument");
  RequireDefined(*affix);
  const auto fits = [&](const Value& candidate) {
    const Text* part = candidate.text();
    if (part == nullptr) {
      Fail(FailureKind::kType,
           "startswith first arg must be str or a tuple of str, not " + std::string(candidate.type_name()));
    }
    const std::string_view text = self.text()->view();
    return at_start ? text.substr(0, part->size()) == part->view()
                    : text.size() >= part->size() && text.substr(text.size() - part->size()) == part->view();
  };
  if (affix->list() == nullptr || !affix->list()->is_tuple) return fits(*affix);
  return std::any_of(affix->list()->items.begin(), affix->list()->items.end(), fits);
}

Value Position(const Value& self, const A& a, bool last) {
  const std::string_view text = self.text()->view();
  const std::string_view part = TextArgument(a, 0, "sub").view();
  const size_t found = last ? text.rfind(part) : text.find(part);
  return found == std::string_view::npos ? int64_t{-1} : CharacterCount(text.substr(0, found));
}

Value CountPart(I&, const Value& self, const A& a) {
  const std::string_view text = self.text()->view();
  const std::string_view part = TextArgument(a, 0, "sub").view();
  if (part.empty()) return CharacterCount(text) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

Value ReplaceMethod(I& interpreter, const Value& self, const A& a) {
  const Text& from = TextArgument(a, 0, "old");
  const Text& to = TextArgument(a, 1, "new");
  return interpreter.NewText(Replace(*self.text(), from.view(), to, a.Integer(2, "count", -1)));
}

Value JoinMethod(I& interpreter, const Value& self, const A& a) {
  const Value* items = a.Find(0, "iterable");
  if (items == nullptr) Fail(FailureKind::kType, "join needs what to join");
  Text out;
  bool first = true;
  for (const Value& item : Iterate(*items)) {
    if (item.text() == nullptr) {
      Fail(FailureKind::kType, "sequence item: expected str instance, " + std::string(item.type_name()) + " found");
    }
    if (!first) out.Append(*self.text());
    first = false;
    out.Append(*item.text());
    interpreter.Charge(1 + self.text()->size() / 64);
  }
  return interpreter.NewText(std::move(out));
}

Value Partition(const Value& self, const A& a, bool last) {
  const Text& text = *self.text();
  const Text& between = TextArgument(a, 0, "sep");
  if (between.empty()) Fail(FailureKind::kValue, "empty separator");
  const size_t found = last ? text.view().rfind(between.view()) : text.view().find(between.view());
  List out{.items = {}, .is_tuple = true, .names = {}};
  if (found == std::string_view::npos) {
    out.items = last ? std::vector<Value>{Text(), Text(), text} : std::vector<Value>{text, Text(), Text()};
  } else {
    const size_t end = found + between.size();
    out.items = {text.Part(0, found), between, text.Part(end, text.size() - end)};
  }
  return out;
}

Value RemoveAffix(const Value& self, const A& a, bool at_start) {
  if (!Affix(self, a, at_start).truthy()) return self;
  const Text& text = *self.text();
  const size_t size = TextArgument(a, 0, "prefix").size();
  return at_start ? text.Part(size, text.size() - size) : text.Part(0, text.size() - size);
}

Value Justify(I& interpreter, const Value& self, const A& a, bool text_first) {
  const Text& text = *self.text();
  const int64_t padding =
      std::clamp<int64_t>(a.Integer(0, "width", 0) - CharacterCount(text.view()), 0, int64_t{1} << 20);
  const Value* fill = a.Find(1, "fillchar");
  Text out;
  if (text_first) out.Append(text);
  out.Append(Repeat(fill != nullptr ? fill->ToText() : Text::Literal(" "), padding));
  if (!text_first) out.Append(text);
  return interpreter.NewText(std::move(out));
}

Value AllCharacters(const Value& self, bool (*predicate)(char32_t)) {
  const std::string_view text = self.text()->view();
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text, at);
    if (!predicate(step.codepoint)) return false;
    at += step.length;
  }
  return !text.empty();
}
bool IsDigit(char32_t c) { return c >= '0' && c <= '9'; }
bool IsAlpha(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= 0xC0 && c != 0xD7 && c != 0xF7 && !IsSpace(c));
}
bool IsAlnum(char32_t c) { return IsDigit(c) || IsAlpha(c); }

// "{}", "{0}", "{name}"; no conversions and specifications.
Value Format(I& interpreter, const Value& self, const A& a) {
  const Text& format = *self.text();
  const std::string_view view = format.view();
  Text out;
  size_t next = 0;
  for (size_t at = 0; at < view.size();) {
    const size_t brace = std::min(view.find_first_of("{}", at), view.size());
    out.AppendPart(format, at, brace - at);
    at = brace;
    if (at == view.size()) break;
    if (at + 1 < view.size() && view[at + 1] == view[at]) {
      out.AppendPart(format, at, 1);
      at += 2;
      continue;
    }
    const size_t end = view.find('}', at);
    if (view[at] == '}' || end == std::string_view::npos) Fail(FailureKind::kValue, "a single brace in format string");
    std::string field(view.substr(at + 1, end - at - 1));
    if (field.find_first_of(":!.[") != std::string::npos) {
      Fail(FailureKind::kValue, "format field '{" + field + "}' is not supported");
    }
    const bool is_index =
        field.empty() || (field.size() < 6 && field.find_first_not_of("0123456789") == std::string::npos);
    const size_t index = field.empty() ? next++ : is_index ? static_cast<size_t>(std::stoul(field)) : SIZE_MAX;
    const Value* value = a.Find(is_index ? index : SIZE_MAX, is_index ? std::string() : field);
    if (value == nullptr) Fail(FailureKind::kValue, "no argument for format field '{" + field + "}'");
    out.Append(value->ToText());
    at = end + 1;
  }
  return interpreter.NewText(std::move(out));
}

struct Entry {
  std::string_view name;
  MethodFunction function;
};

const Entry kTextMethods[] = {
    {"capitalize", [](I&, const Value& v, const A&) -> Value { return Capitalize(*v.text()); }},
    {"casefold", [](I&, const Value& v, const A&) -> Value { return MapCase(*v.text(), false); }},
    {"count", CountPart},
    {"endswith", [](I&, const Value& v, const A& a) { return Affix(v, a, false); }},
    {"find", [](I&, const Value& v, const A& a) { return Position(v, a, false); }},
    {"format", Format},
    {"index",
     [](I&, const Value& v, const A& a) {
       Value found = Position(v, a, false);
       if (found.integer() == -1) Fail(FailureKind::kValue, "substring not found");
       return found;
     }},
    {"isalnum", [](I&, const Value& v, const A&) { return AllCharacters(v, IsAlnum); }},
    {"isalpha", [](I&, const Value& v, const A&) { return AllCharacters(v, IsAlpha); }},
    {"isdigit", [](I&, const Value& v, const A&) { return AllCharacters(v, IsDigit); }},
    {"isnumeric", [](I&, const Value& v, const A&) { return AllCharacters(v, IsDigit); }},
    {"isspace", [](I&, const Value& v, const A&) { return AllCharacters(v, IsSpace); }},
    {"islower", [](I& i, const Value& v, const A& a) -> Value { return FindTest("lower")(i, v, a); }},
    {"isupper", [](I& i, const Value& v, const A& a) -> Value { return FindTest("upper")(i, v, a); }},
    {"join", JoinMethod},
    {"ljust", [](I& i, const Value& v, const A& a) { return Justify(i, v, a, true); }},
    {"lower", [](I&, const Value& v, const A&) -> Value { return MapCase(*v.text(), false); }},
    {"lstrip", [](I&, const Value& v, const A& a) { return StripMethod(v, a, true, false); }},
    {"partition", [](I&, const Value& v, const A& a) { return Partition(v, a, false); }},
    {"removeprefix", [](I&, const Value& v, const A& a) { return RemoveAffix(v, a, true); }},
    {"removesuffix", [](I&, const Value& v, const A& a) { return RemoveAffix(v, a, false); }},
    {"replace", ReplaceMethod},
    {"rfind", [](I&, const Value& v, const A& a) { return Position(v, a, true); }},
    {"rjust", [](I& i, const Value& v, const A& a) { return Justify(i, v, a, false); }},
    {"rpartition", [](I&, const Value& v, const A& a) { return Partition(v, a, true); }},
    {"rsplit", RightSplit},
    {"rstrip", [](I&, const Value& v, const A& a) { return StripMethod(v, a, false, true); }},
    {"split", Split},
    {"splitlines", SplitLines},
    {"startswith", [](I&, const Value& v, const A& a) { return Affix(v, a, true); }},
    {"strip", [](I&, const Value& v, const A& a) { return StripMethod(v, a, true, true); }},
    {"title", [](I&, const Value& v, const A&) -> Value { return TitleCase(*v.text()); }},
    {"upper", [](I&, const Value& v, const A&) -> Value { return MapCase(*v.text(), true); }},
};

Value Get(I&, const Value& self, const A& a) {
  if (a.positional.empty()) Fail(FailureKind::kType, "get expected at least 1 argument, got 0");
  if (const Value* value = self.dict()->Find(a.positional[0])) return *value;
  return a.positional.size() > 1 ? a.positional[1] : Value(None{});
}

Value Pairs(I& interpreter, const Value& self, const A&) {
  List out;
  for (const auto& [key, value] : self.dict()->items()) {
    out.items.emplace_back(List{.items = {key, value}, .is_tuple = true, .names = {}});
  }
  return interpreter.NewList(std::move(out));
}

Value Keys(I& interpreter, const Value& self, const A&) {
  List out;
  for (const auto& [key, value] : self.dict()->items()) out.items.push_back(key);
  return interpreter.NewList(std::move(out));
}

Value Values(I& interpreter, const Value& self, const A&) {
  List out;
  for (const auto& [key, value] : self.dict()->items()) out.items.push_back(value);
  return interpreter.NewList(std::move(out));
}

const Entry kDictMethods[] = {
    {"copy", [](I&, const Value& v, const A&) { return v; }},
    {"get", Get},
    {"items", Pairs},
    {"keys", Keys},
    {"values", Values},
};
constexpr std::string_view kUnsafeDictMethods[] = {"clear", "pop", "popitem", "setdefault", "update"};

const Entry kListMethods[] = {
    {"count",
     [](I&, const Value& v, const A& a) -> Value {
       const auto& items = v.list()->items;
       if (a.positional.empty()) Fail(FailureKind::kType, "count() takes exactly one argument (0 given)");
       return static_cast<int64_t>(
           std::count_if(items.begin(), items.end(), [&](const Value& i) { return Equal(i, a.positional[0]); }));
     }},
    {"index",
     [](I&, const Value& v, const A& a) -> Value {
       const auto& items = v.list()->items;
       for (size_t i = 0; i < items.size() && !a.positional.empty(); ++i) {
         if (Equal(items[i], a.positional[0])) return static_cast<int64_t>(i);
       }
       Fail(FailureKind::kValue, "the value is not in list");
     }},
};
constexpr std::string_view kUnsafeListMethods[] = {"append", "clear",  "extend",  "insert",
                                                   "pop",    "remove", "reverse", "sort"};

MethodFunction FindIn(std::span<const Entry> entries, std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

void RefuseUnsafe(std::span<const std::string_view> names, const Value& self, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) return;
  Fail(FailureKind::kSecurity,
       "access to attribute '" + std::string(name) + "' of '" + std::string(self.type_name()) + "' object is unsafe.");
}

}  // namespace

MethodFunction FindMethod(const Value& self, std::string_view name) {
  if (self.text() != nullptr) return FindIn(kTextMethods, name);
  if (self.dict() != nullptr) {
    RefuseUnsafe(kUnsafeDictMethods, self, name);
    return FindIn(kDictMethods, name);
  }
  if (self.list() != nullptr) {
    if (!self.list()->is_tuple) RefuseUnsafe(kUnsafeListMethods, self, name);
    return FindIn(kListMethods, name);
  }
  return nullptr;
}

}  // namespace millrace::recipe::jinja
