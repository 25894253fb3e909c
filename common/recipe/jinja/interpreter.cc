#include "common/recipe/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/failure.h"
#include "common/recipe/jinja/objects.h"

namespace millrace::recipe::jinja {
namespace {

const Value* FindName(const Scope* scope, std::string_view name) {
  for (; scope != nullptr; scope = scope->outer.get()) {
    const auto it = scope->names.find(name);
    if (it != scope->names.end()) return &it->second;
  }
  return nullptr;
}

std::shared_ptr<Scope> NewScope(std::shared_ptr<Scope> outer) {
  auto scope = std::make_shared<Scope>();
  scope->outer = std::move(outer);
  return scope;
}

// Puts back the scope that was current.
class ScopeSwitch {
 public:
  ScopeSwitch(std::shared_ptr<Scope>& current, std::shared_ptr<Scope> next)
      : current_(current), saved_(std::exchange(current, std::move(next))) {}
  ~ScopeSwitch() { current_ = std::move(saved_); }
  ScopeSwitch(const ScopeSwitch&) = delete;
  ScopeSwitch& operator=(const ScopeSwitch&) = delete;

 private:
  std::shared_ptr<Scope>& current_;
  std::shared_ptr<Scope> saved_;
};

}  // namespace

class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
    interpreter_.Charge(1);
    if (++interpreter_.depth_ > interpreter_.limits_.depth) {
      --interpreter_.depth_;
      Fail(FailureKind::kLimit, "the template recurses too deep");
    }
  }
  ~Level() { --interpreter_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(std::map<std::string, Value, std::less<>> globals, int64_t now_unix_s, Limits limits)
    : now_unix_s_(now_unix_s), limits_(limits), root_(NewScope(nullptr)), scope_(root_) {
  root_->names = std::move(globals);
  AddFunctions(root_->names);
}

Interpreter::~Interpreter() {
  for (const auto& object : tracked_) object->Release();
}

Text Interpreter::Run(const Block& block) {
  Text out;
  RunBlock(block, out);
  return out;
}

void Interpreter::Track(std::shared_ptr<Object> object) {
  if (tracked_.size() >= limits_.objects) Fail(FailureKind::kLimit, "the template makes too many objects");
  tracked_.push_back(std::move(object));
}

void Interpreter::Charge(uint64_t amount) {
  steps_ += amount;
  if (steps_ > limits_.steps) Fail(FailureKind::kLimit, "the template runs too long");
}

Value Interpreter::NewText(Text text) {
  if (text.size() > limits_.text_bytes) Fail(FailureKind::kLimit, "a text of the template grows too large");
  Charge(1 + text.size() / 64);
  return text;
}

Value Interpreter::NewList(List list) {
  if (list.items.size() > limits_.list_items) Fail(FailureKind::kLimit, "a list of the template grows too large");
  Charge(1 + list.items.size());
  return list;
}

Interpreter::Flow Interpreter::RunBlock(const Block& block, Text& out) {
  const Level level(*this);
  for (const auto& statement : block) {
    if (const Flow flow = RunStatement(*statement, out); flow != Flow::kNormal) return flow;
    if (out.size() > limits_.text_bytes) Fail(FailureKind::kLimit, "the prompt grows too large");
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement, Text& out) {
  switch (statement.kind) {
    case StatementKind::kData:
      Charge(1 + statement.name.size() / 64);
      out.Append(statement.name, false);
      return Flow::kNormal;
    case StatementKind::kOutput: {
      const Value value = Evaluate(*statement.expression);
      if (const Text* text = value.text()) {
        Charge(1 + text->size() / 64);
        out.Append(*text);
      } else {
        out.Append(value.ToText());
      }
      return Flow::kNormal;
    }
    case StatementKind::kIf:
      return RunBlock(Evaluate(*statement.expression).truthy() ? statement.body : statement.otherwise, out);
    case StatementKind::kFor:
      return RunFor(statement, out);
    case StatementKind::kSet:
      Assign(*statement.target, Evaluate(*statement.expression));
      return Flow::kNormal;
    case StatementKind::kSetBlock: {
      Text text;
      {
        const ScopeSwitch inner(scope_, NewScope(scope_));
        RunBlock(statement.body, text);
      }
      Assign(*statement.target, ThroughFilters(statement.filter.get(), std::move(text)));
      return Flow::kNormal;
    }
    case StatementKind::kMacro:
      DefineMacro(statement);
      return Flow::kNormal;
    case StatementKind::kCall:
      RunCallBlock(statement, out);
      return Flow::kNormal;
    case StatementKind::kFilter: {
      Text text;
      {
        const ScopeSwitch inner(scope_, NewScope(scope_));
        RunBlock(statement.body, text);
      }
      out.Append(ThroughFilters(statement.filter.get(), std::move(text)).ToText());
      return Flow::kNormal;
    }
    case StatementKind::kWith:
      RunWith(statement, out);
      return Flow::kNormal;
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Interpreter::RunWith(const Statement& statement, Text& out) {
  auto inner = NewScope(scope_);
  for (const Parameter& parameter : statement.parameters) inner->names[parameter.name] = Evaluate(*parameter.value);
  const ScopeSwitch inside(scope_, std::move(inner));
  RunBlock(statement.body, out);
}

void Interpreter::DefineMacro(const Statement& statement) {
  auto macro = std::make_shared<Macro>(statement, scope_);
  scope_->names[statement.name] = Value(std::shared_ptr<Object>(std::move(macro)));
}

void Interpreter::RunCallBlock(const Statement& statement, Text& out) {
  const Value callee = Evaluate(*statement.expression->children[0]);
  Arguments arguments = EvaluateArguments(*statement.expression);
  arguments.named.emplace_back("caller", std::shared_ptr<Object>(std::make_shared<Macro>(statement, scope_)));
  out.Append(CallValue(callee, arguments).ToText());
}

Interpreter::Flow Interpreter::RunFor(const Statement& statement, Text& out) {
  RunLoop(statement, Evaluate(*statement.expression), scope_, 1, out);
  return Flow::kNormal;
}

List Interpreter::LoopItems(const Statement& loop, const Value& items, const std::shared_ptr<Scope>& scope) {
  List all;
  all.items = Iterate(items);
  Charge(all.items.size());
  if (loop.filter == nullptr) return all;
  List kept;
  for (const Value& item : all.items) {
    const ScopeSwitch inner(scope_, NewScope(scope));
    Assign(*loop.target, item);
    if (Evaluate(*loop.filter).truthy()) kept.items.push_back(item);
  }
  return kept;
}

void Interpreter::RunLoop(const Statement& loop, const Value& items, const std::shared_ptr<Scope>& scope, int64_t depth,
                          Text& out) {
  const Level level(*this);
  const ScopeSwitch outer(scope_, scope);
  auto state = std::make_shared<Loop>(loop, LoopItems(loop, items, scope).items, scope, depth);
  Track(state);
  if (state->count() == 0) {
    RunBlock(loop.otherwise, out);
    return;
  }
  for (size_t i = 0; i < state->count(); ++i) {
    state->MoveTo(i);
    const ScopeSwitch inner(scope_, NewScope(scope));
    Assign(*loop.target, state->item(i));
    scope_->names["loop"] = Value(std::shared_ptr<Object>(state));
    if (RunBlock(loop.body, out) == Flow::kBreak) return;
  }
}

void Interpreter::Assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    scope_->names[target.name] = value;
    return;
  }
  if (target.kind == ExpressionKind::kAttribute) {
    const Value base = Evaluate(*target.children[0]);
    auto* space = dynamic_cast<Namespace*>(base.object());
    if (space == nullptr) Fail(FailureKind::kRuntime, "cannot assign attribute on non-namespace object");
    space->Set(target.name, value);
    return;
  }
  const std::vector<Value> items = Iterate(value);
  if (items.size() != target.children.size()) {
    Fail(FailureKind::kValue,
         std::to_string(items.size()) + " values to unpack, expected " + std::to_string(target.children.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(*target.children[i], items[i]);
}

Value Interpreter::ThroughFilters(const Expression* filter, Text text) {
  const Value input = NewText(std::move(text));
  return filter == nullptr ? input : EvaluateFilter(*filter, &input);
}

Value Interpreter::CallValue(const Value& callee, const Arguments& arguments) {
  const Level level(*this);
  if (Object* object = callee.object()) return object->Call(*this, arguments);
  RequireDefined(callee);
  Fail(FailureKind::kType, "'" + std::string(callee.type_name()) + "' object is not callable");
}

Value Interpreter::CallMacro(const Statement& macro, const std::shared_ptr<Scope>& defined_in,
                             const Arguments& arguments) {
  const Level level(*this);
  const ScopeSwitch inside(scope_, NewScope(defined_in));
  auto& names = scope_->names;
  List rest{.items = {}, .is_tuple = true, .names = {}};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < macro.parameters.size()) {
      names[macro.parameters[i].name] = arguments.positional[i];
    } else {
      rest.items.push_back(arguments.positional[i]);
    }
  }
  Dict further;
  for (const auto& [name, value] : arguments.named) {
    const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                   [&n = name](const Parameter& p) { return p.name == n; });
    if (known || name == "caller") {
      names[name] = value;
    } else {
      further.Set(Value::Literal(name), value);
    }
  }
  for (const Parameter& parameter : macro.parameters) {
    if (names.find(parameter.name) != names.end()) continue;
    names[parameter.name] = parameter.value != nullptr
                                ? Evaluate(*parameter.value)
                                : Value(Undefined{"parameter '" + parameter.name + "' was not provided"});
  }
  names["varargs"] = NewList(std::move(rest));
  names["kwargs"] = std::move(further);
  Text out;
  RunBlock(macro.body, out);
  return NewText(std::move(out));
}

Value Interpreter::Evaluate(const Expression& expression) {
  const Level level(*this);
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return EvaluateName(expression);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return EvaluateSequence(expression);
    case ExpressionKind::kDict:
      return EvaluateDict(expression);
    case ExpressionKind::kAttribute:
      return GetAttribute(Evaluate(*expression.children[0]), expression.name);
    case ExpressionKind::kItem: {
      const Value base = Evaluate(*expression.children[0]);
      return GetItem(base, Evaluate(*expression.children[1]));
    }
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression);
    case ExpressionKind::kCall: {
      const Value callee = Evaluate(*expression.children[0]);
      return CallValue(callee, EvaluateArguments(expression));
    }
    case ExpressionKind::kFilter:
      return EvaluateFilter(expression, nullptr);
    case ExpressionKind::kTest: {
      const TestFunction test = FindTest(expression.name);
      if (test == nullptr) Fail(FailureKind::kSyntax, "No test named '" + expression.name + "'.");
      const Value input = Evaluate(*expression.children[0]);
      return test(*this, input, EvaluateArguments(expression));
    }
    case ExpressionKind::kUnary:
      return EvaluateUnary(expression);
    case ExpressionKind::kBinary:
      return EvaluateBinary(expression);
    case ExpressionKind::kConcat:
      return EvaluateConcat(expression);
    case ExpressionKind::kCompare:
      return EvaluateCompare(expression);
    case ExpressionKind::kCondition: {
      const size_t branch = Evaluate(*expression.children[0]).truthy() ? 1 : 2;
      if (expression.children[branch] != nullptr) return Evaluate(*expression.children[branch]);
      return Undefined{"the inline if-expression evaluated to false and no else section was defined."};
    }
  }
  return Value();
}

Value Interpreter::EvaluateName(const Expression& expression) {
  if (const Value* value = FindName(scope_.get(), expression.name)) return *value;
  return Undefined{"'" + expression.name + "' is undefined"};
}

Value Interpreter::EvaluateSequence(const Expression& expression) {
  List list;
  list.is_tuple = expression.kind == ExpressionKind::kTuple;
  list.items.reserve(expression.children.size());
  for (const auto& child : expression.children) list.items.push_back(Evaluate(*child));
  return NewList(std::move(list));
}

Value Interpreter::EvaluateDict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i + 1 < expression.children.size(); i += 2) {
    const Value key = Evaluate(*expression.children[i]);
    dict.Set(key, Evaluate(*expression.children[i + 1]));
  }
  return dict;
}

Arguments Interpreter::EvaluateArguments(const Expression& call) {
  Arguments arguments;
  for (size_t i = 1; i < call.children.size(); ++i) arguments.positional.push_back(Evaluate(*call.children[i]));
  for (const auto& [name, value] : call.named) arguments.named.emplace_back(name, Evaluate(*value));
  return arguments;
}

Value Interpreter::EvaluateFilter(const Expression& expression, const Value* input) {
  const Level level(*this);
  const FilterFunction filter = FindFilter(expression.name);
  if (filter == nullptr) Fail(FailureKind::kSyntax, "No filter named '" + expression.name + "'.");
  Value value;
  if (expression.children[0] == nullptr) {
    value = *input;
  } else if (input != nullptr && expression.children[0]->kind == ExpressionKind::kFilter) {
    value = EvaluateFilter(*expression.children[0], input);
  } else {
    value = Evaluate(*expression.children[0]);
  }
  Value result = filter(*this, value, EvaluateArguments(expression));
  if (const Text* text = result.text()) Charge(1 + text->size() / 64);
  return result;
}

Value Interpreter::EvaluateSlice(const Expression& expression) {
  const Value base = Evaluate(*expression.children[0]);
  std::optional<int64_t> parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expression.children[i + 1] == nullptr) continue;
    const Value part = Evaluate(*expression.children[i + 1]);
    if (part.is_none()) continue;
    parts[i] = part.integer();
    if (!parts[i]) Fail(FailureKind::kType, "slice indices must be integers or None");
  }
  const int64_t step = parts[2].value_or(1);
  if (step == 0) Fail(FailureKind::kValue, "slice step cannot be zero");
  RequireDefined(base);
  const Text* text = base.text();
  const List* list = base.list();
  if (text == nullptr && list == nullptr) {
    Fail(FailureKind::kType, "'" + std::string(base.type_name()) + "' object is not subscriptable");
  }
  const std::vector<size_t> starts = text != nullptr ? CharacterStarts(text->view()) : std::vector<size_t>();
  const auto count = static_cast<int64_t>(text != nullptr ? starts.size() - 1 : list->items.size());
  const auto clamp = [&](int64_t i) {
    const int64_t from_start = i < 0 ? i + count : i;
    return std::clamp<int64_t>(from_start, step < 0 ? -1 : 0, step < 0 ? count - 1 : count);
  };
  const int64_t start = parts[0] ? clamp(*parts[0]) : (step < 0 ? count - 1 : 0);
  const int64_t stop = parts[1] ? clamp(*parts[1]) : (step < 0 ? -1 : count);
  Text text_out;
  List list_out;
  list_out.is_tuple = list != nullptr && list->is_tuple;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    const auto at = static_cast<size_t>(i);
    if (text != nullptr) {
      text_out.AppendPart(*text, starts[at], starts[at + 1] - starts[at]);
    } else {
      list_out.items.push_back(list->items[at]);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return text != nullptr ? NewText(std::move(text_out)) : NewList(std::move(list_out));
}

Value Interpreter::EvaluateConcat(const Expression& expression) {
  Text out;
  for (const auto& child : expression.children) {
    out.Append(Evaluate(*child).ToText());
    if (out.size() > limits_.text_bytes) break;
  }
  return NewText(std::move(out));
}

}  // namespace millrace::recipe::jinja
