// Operators, attributes, items and iteration: what the language does with values.

#include <cmath>
#include <limits>
#include <string>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/interpreter.h"
#include "common/recipe/jinja/objects.h"

namespace millrace::recipe::jinja {
namespace {

[[noreturn]] void FailOperands(std::string_view op, const Value& a, const Value& b) {
  RequireDefined(a);
  RequireDefined(b);
  if (op == "+" && a.text() != nullptr) {
    Fail(FailureKind::kType, "can only concatenate str (not \"" + std::string(b.type_name()) + "\") to str");
  }
  Fail(FailureKind::kType, "unsupported operand type(s) for " + std::string(op) + ": '" + std::string(a.type_name()) +
                               "' and '" + std::string(b.type_name()) + "'");
}

[[noreturn]] void FailOverflow() { Fail(FailureKind::kOverflow, "integer arithmetic beyond 64 bits"); }

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) FailOverflow();
    return -a;
  }
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

int64_t IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent && result != 0 && !(base == 1); ++i) {
    if (__builtin_mul_overflow(result, base, &result)) FailOverflow();
    if (base == -1 && i > 1) return exponent % 2 == 0 ? 1 : -1;
  }
  return result;
}

Value IntegerArithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) FailOverflow();
    return result;
  }
  if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) FailOverflow();
    return result;
  }
  if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) FailOverflow();
    return result;
  }
  if (op == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    return IntegerPower(a, b);
  }
  if (b == 0) Fail(FailureKind::kZeroDivision, op == "/" ? "division by zero" : "integer modulo by zero");
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (op == "//") return FloorDivide(a, b);
  return b == -1 ? int64_t{0} : a - FloorDivide(a, b) * b;
}

Value DoubleArithmetic(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) Fail(FailureKind::kZeroDivision, "float division by zero");
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

bool Contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    RequireDefined(item);
    const Text* part = item.text();
    if (part == nullptr) {
      Fail(FailureKind::kType, "'in <string>' requires string as left operand, not " + std::string(item.type_name()));
    }
    return text->view().find(part->view()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return dict->Find(item) != nullptr;
  if (const List* list = container.list()) {
    for (const Value& element : list->items) {
      if (Equal(element, item)) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  Fail(FailureKind::kType, "argument of type '" + std::string(container.type_name()) + "' is not iterable");
}

bool CompareOnce(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return Equal(a, b);
  if (op == "!=") return !Equal(a, b);
  if (op == "in") return Contains(b, a);
  if (op == "not in") return !Contains(b, a);
  RequireDefined(a);
  RequireDefined(b);
  if (op == "<") return Less(a, b);
  if (op == ">") return Less(b, a);
  if (op == "<=") return Less(a, b) || Equal(a, b);
  return Less(b, a) || Equal(a, b);
}

const Value* RepeatOperands(const Value& a, const Value& b, int64_t& count) {
  const Value& sequence = a.integer() ? b : a;
  const auto times = (a.integer() ? a : b).integer();
  if (!times || (sequence.text() == nullptr && sequence.list() == nullptr)) return nullptr;
  count = std::max<int64_t>(*times, 0);
  return &sequence;
}

}  // namespace

void RequireDefined(const Value& value) {
  if (const Undefined* undefined = value.undefined()) {
    Fail(FailureKind::kUndefined, undefined->message.empty() ? "a value is undefined" : undefined->message);
  }
}

Value Interpreter::EvaluateBinary(const Expression& expression) {
  const std::string& op = expression.name;
  Value a = Evaluate(*expression.children[0]);
  if (op == "and") return a.truthy() ? Evaluate(*expression.children[1]) : a;
  if (op == "or") return a.truthy() ? a : Evaluate(*expression.children[1]);
  const Value b = Evaluate(*expression.children[1]);
  if (op == "%" && a.text() != nullptr) return PercentFormat(*this, *a.text(), b);
  if (const auto x = a.integer(), y = b.integer(); x && y) return IntegerArithmetic(op, *x, *y);
  if (const auto x = a.number(), y = b.number(); x && y) return DoubleArithmetic(op, *x, *y);
  if (op == "+") {
    if (a.text() != nullptr && b.text() != nullptr) {
      Text joined = *a.text();
      joined.Append(*b.text());
      return NewText(std::move(joined));
    }
    if (const List *x = a.list(), *y = b.list(); x != nullptr && y != nullptr && x->is_tuple == y->is_tuple) {
      List joined{.items = x->items, .is_tuple = x->is_tuple, .names = {}};
      joined.items.insert(joined.items.end(), y->items.begin(), y->items.end());
      return NewList(std::move(joined));
    }
  }
  int64_t count = 0;
  if (const Value* sequence = op == "*" ? RepeatOperands(a, b, count) : nullptr) {
    const uint64_t size = sequence->text() != nullptr ? sequence->text()->size() : sequence->list()->items.size();
    const uint64_t limit = sequence->text() != nullptr ? limits_.text_bytes : limits_.list_items;
    if (size > 0 && static_cast<uint64_t>(count) > limit / size) {
      Fail(FailureKind::kLimit, "a repetition grows too large");
    }
    if (const Text* text = sequence->text()) return NewText(Repeat(*text, count));
    List repeated{.items = {}, .is_tuple = sequence->list()->is_tuple, .names = {}};
    for (int64_t i = 0; i < count; ++i) {
      repeated.items.insert(repeated.items.end(), sequence->list()->items.begin(), sequence->list()->items.end());
    }
    return NewList(std::move(repeated));
  }
  FailOperands(op, a, b);
}

Value Interpreter::EvaluateUnary(const Expression& expression) {
  const Value value = Evaluate(*expression.children[0]);
  if (expression.name == "not") return !value.truthy();
  RequireDefined(value);
  const bool negative = expression.name == "-";
  if (const auto i = value.integer()) {
    if (*i == std::numeric_limits<int64_t>::min()) FailOverflow();
    return negative ? -*i : *i;
  }
  if (const auto d = value.number()) return negative ? -*d : *d;
  Fail(FailureKind::kType,
       "bad operand type for unary " + expression.name + ": '" + std::string(value.type_name()) + "'");
}

Value Interpreter::EvaluateCompare(const Expression& expression) {
  Value left = Evaluate(*expression.children[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = Evaluate(*expression.children[i + 1]);
    if (right.list() != nullptr) Charge(right.list()->items.size() / 8);
    if (right.text() != nullptr) Charge(right.text()->size() / 64);
    if (!CompareOnce(expression.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value GetAttribute(const Value& base, std::string_view name) {
  RequireDefined(base);
  if (Object* object = base.object()) {
    if (auto value = object->Attribute(name)) return *value;
    if (dynamic_cast<Loop*>(object) != nullptr) {
      if (const MethodFunction method = LoopMethod(name)) {
        return std::shared_ptr<Object>(std::make_shared<BoundMethod>(base, method));
      }
    }
  } else if (name.substr(0, 2) == "__") {
    Fail(FailureKind::kSecurity, "access to attribute '" + std::string(name) + "' of '" +
                                     std::string(base.type_name()) + "' object is unsafe.");
  } else if (const MethodFunction method = FindMethod(base, name)) {
    return std::shared_ptr<Object>(std::make_shared<BoundMethod>(base, method));
  }
  if (const List* list = base.list()) {
    for (size_t i = 0; i < list->names.size(); ++i) {
      if (list->names[i] == name) return list->items[i];
    }
  }
  if (const Dict* dict = base.dict()) {
    if (const Value* value = dict->Find(name)) return *value;
  }
  return Undefined{"'" + base.Description() + "' has no attribute '" + std::string(name) + "'"};
}

Value GetItem(const Value& base, const Value& key) {
  RequireDefined(base);
  if (const Dict* dict = base.dict()) {
    if (const Value* value = dict->Find(key)) return *value;
  } else if (const auto index = key.integer()) {
    if (const List* list = base.list()) {
      const auto count = static_cast<int64_t>(list->items.size());
      const int64_t at = *index < 0 ? *index + count : *index;
      if (at >= 0 && at < count) return list->items[static_cast<size_t>(at)];
    } else if (const Text* text = base.text()) {
      const std::vector<size_t> starts = CharacterStarts(text->view());
      const auto count = static_cast<int64_t>(starts.size()) - 1;
      const int64_t at = *index < 0 ? *index + count : *index;
      if (at >= 0 && at < count) {
        const size_t start = starts[static_cast<size_t>(at)];
        return text->Part(start, starts[static_cast<size_t>(at) + 1] - start);
      }
    }
  }
  if (const Text* name = key.text()) return GetAttribute(base, name->view());
  return Undefined{"'" + base.Description() + "' has no element " + key.Repr().bytes()};
}

std::vector<Value> Iterate(const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* list = value.list()) return list->items;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, unused] : dict->items()) items.push_back(key);
    return items;
  }
  if (const Text* text = value.text()) {
    const std::vector<size_t> starts = CharacterStarts(text->view());
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      items.emplace_back(text->Part(starts[i], starts[i + 1] - starts[i]));
    }
    return items;
  }
  Fail(FailureKind::kType, "'" + std::string(value.type_name()) + "' object is not iterable");
}

}  // namespace millrace::recipe::jinja
