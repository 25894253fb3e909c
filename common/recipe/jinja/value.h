#pragma once
// Values of the template language: what JSON has, tuples, undefined and callables. Immutable but for namespaces and
// other objects, so copies share. Nesting is bounded: a value can be walked by recursion.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/recipe/jinja/text.h"

namespace millrace::recipe::jinja {

class Value;
class Interpreter;
struct Arguments;

// What is missing, for the message when it is used.
struct Undefined {
  std::string message;
};
struct None {};
// An integer beyond 64 bits, as decimal digits: it can be printed, no more.
struct BigInteger {
  std::string digits;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  std::vector<std::string> names;  // attributes for the items, of named tuples
  uint32_t depth = 0;              // of nesting; set when it becomes a Value
};

// In order of insertion.
class Dict {
 public:
  void Set(const Value& key, Value value);
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  uint32_t depth() const { return depth_; }

 private:
  friend class Value;
  std::vector<std::pair<Value, Value>> items_;
  std::map<std::string, size_t, std::less<>> by_text_;  // string keys
  uint32_t depth_ = 0;
};

// Things with behaviour: macros, functions, loops, namespaces.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual bool callable() const { return false; }
  virtual Value Call(Interpreter& interpreter, const Arguments& arguments);
  // Unset when there is no such attribute.
  virtual std::optional<Value> Attribute(std::string_view name);
  // Lets go of all values it holds, so that objects that refer to each other can be freed.
  virtual void Release() {}
  // Levels of values below one that it holds for good.
  virtual uint32_t depth() const { return 0; }
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(Undefined u) : data_(std::move(u)) {}                           // NOLINT: values convert
  Value(None n) : data_(n) {}                                           // NOLINT
  Value(bool b) : data_(b) {}                                           // NOLINT
  Value(int64_t i) : data_(i) {}                                        // NOLINT
  Value(double d) : data_(d) {}                                         // NOLINT
  Value(BigInteger b) : data_(std::move(b)) {}                          // NOLINT
  Value(Text t) : data_(std::make_shared<const Text>(std::move(t))) {}  // NOLINT
  Value(List l);                                                        // NOLINT
  Value(Dict d);                                                        // NOLINT
  Value(std::shared_ptr<Object> o) : data_(std::move(o)) {}             // NOLINT
  template <class T>
  Value(T*) = delete;
  static Value Literal(std::string bytes) { return Text::Literal(std::move(bytes)); }
  static Value Content(std::string bytes) { return Text::Content(std::move(bytes)); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_double() const { return std::holds_alternative<double>(data_); }
  // Null when it is of another type.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const BigInteger* big_integer() const { return std::get_if<BigInteger>(&data_); }
  const Text* text() const { return Get<const Text>(); }
  const List* list() const { return Get<const List>(); }
  const Dict* dict() const { return Get<const Dict>(); }
  Object* object() const { return Get<Object>(); }
  std::shared_ptr<Object> shared_object() const {
    const auto* p = std::get_if<std::shared_ptr<Object>>(&data_);
    return p != nullptr ? *p : nullptr;
  }
  bool boolean() const { return std::get<bool>(data_); }
  // True counts as 1, as in Python.
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;

  uint32_t depth() const;  // levels of lists and dicts

  bool truthy() const;
  // As Python's str() and repr().
  Text ToText() const;
  Text Repr() const;
  // "dict", "list", "str", "NoneType", ...
  std::string_view type_name() const;
  // As Jinja2 names a value in messages: "dict object", "None".
  std::string Description() const;

 private:
  template <class T>
  T* Get() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&data_);
    return p != nullptr ? p->get() : nullptr;
  }

  std::variant<Undefined, None, bool, int64_t, double, BigInteger, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

bool Equal(const Value& a, const Value& b);
// Throws a type failure for values without an order.
bool Less(const Value& a, const Value& b);
std::string FormatDouble(double value);  // as Python's repr

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `position` or of that name; null when absent.
  const Value* Find(size_t position, std::string_view name) const;
  bool Flag(size_t position, std::string_view name, bool otherwise) const;
  int64_t Integer(size_t position, std::string_view name, int64_t otherwise) const;
};

}  // namespace millrace::recipe::jinja
