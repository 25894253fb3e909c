#include "common/recipe/jinja/objects.h"

#include "common/recipe/jinja/failure.h"

namespace millrace::recipe::jinja {
namespace {

// loop.cycle and loop.changed, bound to their loop.
Value CallCycle(Interpreter&, const Value& self, const Arguments& arguments) {
  return static_cast<const Loop*>(self.object())->Cycle(arguments);
}
Value CallChanged(Interpreter&, const Value& self, const Arguments& arguments) {
  return static_cast<Loop*>(self.object())->Changed(arguments);
}

}  // namespace

Value Macro::Call(Interpreter& interpreter, const Arguments& arguments) {
  std::shared_ptr<Scope> scope = scope_.lock();
  return interpreter.CallMacro(definition_, scope != nullptr ? scope : interpreter.root(), arguments);
}

std::optional<Value> Macro::Attribute(std::string_view name) {
  if (name == "name") return Value::Literal(definition_.name);
  return std::nullopt;
}

std::optional<Value> Namespace::Attribute(std::string_view name) {
  const auto it = values_.find(name);
  if (it == values_.end()) return std::nullopt;
  return it->second;
}

Value Loop::Call(Interpreter& interpreter, const Arguments& arguments) {
  if (!statement_.recursive) {
    Fail(FailureKind::kType, "The loop must have the 'recursive' marker to be called recursively.");
  }
  const Value* items = arguments.Find(0, "iterable");
  std::shared_ptr<Scope> scope = scope_.lock();
  if (items == nullptr) Fail(FailureKind::kType, "loop() needs what to loop over");
  Text out;
  interpreter.RunLoop(statement_, *items, scope != nullptr ? scope : interpreter.root(), depth_ + 1, out);
  return interpreter.NewText(std::move(out));
}

std::optional<Value> Loop::Attribute(std::string_view name) {
  const auto index = static_cast<int64_t>(index_);
  const auto count = static_cast<int64_t>(items_.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(count - index);
  if (name == "revindex0") return Value(count - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == count);
  if (name == "length") return Value(count);
  if (name == "depth") return Value(depth_);
  if (name == "depth0") return Value(depth_ - 1);
  if (name == "previtem") return index > 0 ? items_[index_ - 1] : Value(Undefined{"there is no previous item"});
  if (name == "nextitem") return index + 1 < count ? items_[index_ + 1] : Value(Undefined{"there is no next item"});
  return std::nullopt;
}

Value Loop::Cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) Fail(FailureKind::kType, "no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

bool Loop::Changed(const Arguments& arguments) {
  bool same = last_changed_ && last_changed_->size() == arguments.positional.size();
  for (size_t i = 0; same && i < arguments.positional.size(); ++i) {
    same = Equal((*last_changed_)[i], arguments.positional[i]);
  }
  last_changed_ = arguments.positional;
  return !same;
}

MethodFunction LoopMethod(std::string_view name) {
  if (name == "cycle") return CallCycle;
  if (name == "changed") return CallChanged;
  return nullptr;
}

}  // namespace millrace::recipe::jinja
