#pragma once
// Objects that the interpreter makes while it runs.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/recipe/jinja/builtins.h"
#include "common/recipe/jinja/interpreter.h"
#include "common/recipe/jinja/value.h"

namespace millrace::recipe::jinja {

// A macro, or the body of a call block. Sees the names of the place where it was defined.
class Macro final : public Object {
 public:
  Macro(const Statement& definition, const std::shared_ptr<Scope>& scope) : definition_(definition), scope_(scope) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, const Arguments& arguments) override;
  std::optional<Value> Attribute(std::string_view name) override;

 private:
  const Statement& definition_;
  std::weak_ptr<Scope> scope_;  // which holds the macro
};

class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> Attribute(std::string_view name) override;
  void Release() override { values_.clear(); }
  void Set(const std::string& name, Value value) { values_[name] = std::move(value); }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

class Loop final : public Object {
 public:
  Loop(const Statement& statement, std::vector<Value> items, const std::shared_ptr<Scope>& scope, int64_t depth)
      : statement_(statement), items_(std::move(items)), scope_(scope), depth_(depth) {}
  std::string_view type_name() const override { return "LoopContext"; }
  bool callable() const override { return statement_.recursive; }
  Value Call(Interpreter& interpreter, const Arguments& arguments) override;
  std::optional<Value> Attribute(std::string_view name) override;
  void Release() override {
    items_.clear();
    last_changed_.reset();
  }

  size_t count() const { return items_.size(); }
  const Value& item(size_t i) const { return items_[i]; }
  void MoveTo(size_t index) { index_ = index; }
  Value Cycle(const Arguments& arguments) const;
  bool Changed(const Arguments& arguments);

 private:
  const Statement& statement_;
  std::vector<Value> items_;
  std::weak_ptr<Scope> scope_;
  const int64_t depth_;
  size_t index_ = 0;
  std::optional<std::vector<Value>> last_changed_;
};

// loop.cycle and loop.changed; null for other names.
MethodFunction LoopMethod(std::string_view name);

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, MethodFunction method) : self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  uint32_t depth() const override { return self_.depth() + 1; }
  Value Call(Interpreter& interpreter, const Arguments& arguments) override {
    return method_(interpreter, self_, arguments);
  }

 private:
  Value self_;
  MethodFunction method_;
};

}  // namespace millrace::recipe::jinja
