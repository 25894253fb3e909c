#pragma once
// Runs a parsed template. One Interpreter renders once; not thread-safe; the tree it runs is shared.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/recipe/jinja/ast.h"
#include "common/recipe/jinja/value.h"

namespace millrace::recipe::jinja {

// What bounds a hostile template. An honest one stays orders of magnitude below.
struct Limits {
  uint64_t steps = 5'000'000;  // expressions evaluated, and a part of each byte copied
  uint64_t text_bytes = 64u << 20;
  uint64_t list_items = 1u << 20;
  uint32_t depth = 1500;     // of evaluation, calls of macros included
  size_t objects = 200'000;  // loops, namespaces and other things that change
};

// One lexical level of names. Inner levels see outer ones and never change them.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::map<std::string, Value, std::less<>> names;
};

class Interpreter {
 public:
  // `now_unix_s`: what strftime_now shows, UTC.
  Interpreter(std::map<std::string, Value, std::less<>> globals, int64_t now_unix_s, Limits limits = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws a failure.
  Text Run(const Block& block);

  // For filters, methods and objects.
  Value CallValue(const Value& callee, const Arguments& arguments);
  Value CallMacro(const Statement& macro, const std::shared_ptr<Scope>& defined_in, const Arguments& arguments);
  void RunLoop(const Statement& loop, const Value& items, const std::shared_ptr<Scope>& scope, int64_t depth,
               Text& out);
  // Keeps an object that can come to refer to itself until the end, and frees it then.
  void Track(std::shared_ptr<Object> object);
  // Charges work on that many bytes or items.
  void Charge(uint64_t amount);
  // Both refuse what exceeds the limits; new text is charged for.
  Value NewText(Text text);
  Value NewList(List list);
  int64_t now_unix_s() const { return now_unix_s_; }
  const std::shared_ptr<Scope>& root() const { return root_; }

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };

  Flow RunBlock(const Block& block, Text& out);
  Flow RunStatement(const Statement& statement, Text& out);
  Flow RunFor(const Statement& statement, Text& out);
  void RunCallBlock(const Statement& statement, Text& out);
  void RunWith(const Statement& statement, Text& out);
  List LoopItems(const Statement& loop, const Value& items, const std::shared_ptr<Scope>& scope);
  void DefineMacro(const Statement& statement);
  void Assign(const Expression& target, const Value& value);
  Value ThroughFilters(const Expression* filter, Text text);

  Value Evaluate(const Expression& expression);
  Value EvaluateName(const Expression& expression);
  Value EvaluateSequence(const Expression& expression);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateFilter(const Expression& expression, const Value* input);
  Value EvaluateBinary(const Expression& expression);
  Value EvaluateUnary(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateConcat(const Expression& expression);
  Arguments EvaluateArguments(const Expression& call);

  // Counts the depth of evaluation for as long as it lives.
  class Level;

  const int64_t now_unix_s_;
  const Limits limits_;
  uint64_t steps_ = 0;
  uint32_t depth_ = 0;
  std::shared_ptr<Scope> root_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Object>> tracked_;
};

}  // namespace millrace::recipe::jinja
