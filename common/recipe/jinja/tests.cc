// Tests: what may follow "is".

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/utf8.h"

namespace millrace::recipe::jinja {
namespace {

const Value& Other(const Arguments& a) {
  const Value* other = a.Find(0, "other");
  if (other == nullptr) Fail(FailureKind::kType, "a test needs an argument");
  return *other;
}

int64_t Whole(const Value& v) {
  RequireDefined(v);
  if (const auto i = v.integer()) return *i;
  Fail(FailureKind::kType, "not all arguments converted: an integer is needed, got " + std::string(v.type_name()));
}

// Whether text has letters of one case and none of the other.
bool OnlyCase(const Value& v, bool upper) {
  const Text text = v.ToText();
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.view(), at);
    if (HasCase(step.codepoint, !upper)) return false;
    any = any || HasCase(step.codepoint, upper);
    at += step.length;
  }
  return any;
}

bool InTest(const Value& item, const Value& container) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      Fail(FailureKind::kType, "'in <string>' requires string as left operand, not " + std::string(item.type_name()));
    }
    return text->view().find(item.text()->view()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return dict->Find(item) != nullptr;
  for (const Value& element : Iterate(container)) {
    if (Equal(element, item)) return true;
  }
  return false;
}

using I = Interpreter;
using A = Arguments;

struct Entry {
  std::string_view name;
  TestFunction function;
};

const Entry kTests[] = {
    {"boolean", [](I&, const Value& v, const A&) { return v.is_bool(); }},
    {"callable", [](I&, const Value& v, const A&) { return v.object() != nullptr && v.object()->callable(); }},
    {"defined", [](I&, const Value& v, const A&) { return !v.is_undefined(); }},
    {"divisibleby",
     [](I&, const Value& v, const A& a) {
       const int64_t by = Whole(Other(a));
       if (by == 0) Fail(FailureKind::kZeroDivision, "integer modulo by zero");
       return by == -1 || Whole(v) % by == 0;
     }},
    {"eq", [](I&, const Value& v, const A& a) { return Equal(v, Other(a)); }},
    {"equalto", [](I&, const Value& v, const A& a) { return Equal(v, Other(a)); }},
    {"==", [](I&, const Value& v, const A& a) { return Equal(v, Other(a)); }},
    {"even", [](I&, const Value& v, const A&) { return Whole(v) % 2 == 0; }},
    {"false", [](I&, const Value& v, const A&) { return v.is_bool() && !v.boolean(); }},
    {"filter", [](I&, const Value& v, const A&) { return FindFilter(v.ToText().view()) != nullptr; }},
    {"float", [](I&, const Value& v, const A&) { return v.is_double(); }},
    {"ge", [](I&, const Value& v, const A& a) { return !Less(v, Other(a)); }},
    {"greaterthan", [](I&, const Value& v, const A& a) { return Less(Other(a), v); }},
    {"gt", [](I&, const Value& v, const A& a) { return Less(Other(a), v); }},
    {"in", [](I&, const Value& v, const A& a) { return InTest(v, Other(a)); }},
    {"integer", [](I&, const Value& v, const A&) { return v.is_integer() || v.big_integer() != nullptr; }},
    {"iterable",
     [](I&, const Value& v, const A&) {
       return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr || v.is_undefined();
     }},
    {"le", [](I&, const Value& v, const A& a) { return !Less(Other(a), v); }},
    {"lessthan", [](I&, const Value& v, const A& a) { return Less(v, Other(a)); }},
    {"lower", [](I&, const Value& v, const A&) { return OnlyCase(v, false); }},
    {"lt", [](I&, const Value& v, const A& a) { return Less(v, Other(a)); }},
    {"mapping", [](I&, const Value& v, const A&) { return v.dict() != nullptr; }},
    {"ne", [](I&, const Value& v, const A& a) { return !Equal(v, Other(a)); }},
    {"none", [](I&, const Value& v, const A&) { return v.is_none(); }},
    {"number", [](I&, const Value& v, const A&) { return v.number().has_value() || v.big_integer() != nullptr; }},
    {"odd", [](I&, const Value& v, const A&) { return Whole(v) % 2 != 0; }},
    {"sameas",
     [](I&, const Value& v, const A& a) { return v.type_name() == Other(a).type_name() && Equal(v, Other(a)); }},
    {"sequence",
     [](I&, const Value& v, const A&) {
       return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr || v.is_undefined();
     }},
    {"string", [](I&, const Value& v, const A&) { return v.text() != nullptr; }},
    {"test", [](I&, const Value& v, const A&) { return FindTest(v.ToText().view()) != nullptr; }},
    {"true", [](I&, const Value& v, const A&) { return v.is_bool() && v.boolean(); }},
    {"undefined", [](I&, const Value& v, const A&) { return v.is_undefined(); }},
    {"upper", [](I&, const Value& v, const A&) { return OnlyCase(v, true); }},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace millrace::recipe::jinja
