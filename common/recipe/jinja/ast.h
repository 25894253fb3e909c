#pragma once
// The syntax tree of a template.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/recipe/jinja/value.h"

namespace millrace::recipe::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class ExpressionKind : uint8_t {
  kConstant,   // value
  kName,       // name
  kList,       // children
  kTuple,      // children
  kDict,       // children: key, value, key, value ...
  kAttribute,  // children[0] . name
  kItem,       // children[0] [ children[1] ]
  kSlice,      // children[0] [ 1 : 2 : 3 ], absent ones null
  kCall,       // children[0] ( children[1..], named )
  kFilter,     // children[0] | name ( children[1..], named )
  kTest,       // children[0] is name ( children[1..], named )
  kUnary,      // name: "-", "+", "not"
  kBinary,     // name: "+", "-", "*", "/", "//", "%", "**", "and", "or"
  kConcat,     // children ~ children ...
  kCompare,    // children[0] operators[0] children[1] operators[1] ...
  kCondition,  // children[1] if children[0] else children[2] (null = none)
};

struct Expression {
  ExpressionKind kind;
  uint32_t line = 0;
  uint32_t depth = 0;  // of the tree below
  std::string name;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

enum class StatementKind : uint8_t {
  kData,      // name: the text
  kOutput,    // expression
  kIf,        // expression, body, otherwise
  kFor,       // target in expression, filter, body, otherwise, recursive
  kSet,       // target = expression
  kSetBlock,  // target = body through filters
  kMacro,     // name, parameters, body
  kCall,      // parameters, expression is a kCall, body
  kFilter,    // body through filters
  kWith,      // parameters with their values, body
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  ExpressionPtr value;  // null = none
};

struct Statement {
  StatementKind kind;
  uint32_t line = 0;
  std::string name;
  ExpressionPtr expression;
  ExpressionPtr target;  // kName, kTuple of targets, or kAttribute of a kName
  ExpressionPtr filter;  // for: the condition; set and filter blocks: kFilter expressions around kConstant
  bool recursive = false;
  std::vector<Parameter> parameters;
  Block body;
  Block otherwise;
};

}  // namespace millrace::recipe::jinja
