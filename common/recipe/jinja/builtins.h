#pragma once
// What templates can use without defining it: filters, tests, methods and functions. Tables by name.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/recipe/jinja/interpreter.h"
#include "common/recipe/jinja/value.h"

namespace millrace::recipe::jinja {

using FilterFunction = Value (*)(Interpreter&, const Value& input, const Arguments&);
using TestFunction = bool (*)(Interpreter&, const Value& input, const Arguments&);
using MethodFunction = Value (*)(Interpreter&, const Value& self, const Arguments&);

// Null when there is none of that name.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);
// Throws a security failure for methods that would change the value.
MethodFunction FindMethod(const Value& self, std::string_view name);

void AddFunctions(std::map<std::string, Value, std::less<>>& globals);

// base.name and base[key]; undefined when there is neither.
Value GetAttribute(const Value& base, std::string_view name);
Value GetItem(const Value& base, const Value& key);
// The items of anything that can be iterated over; throws a type failure otherwise.
std::vector<Value> Iterate(const Value& value);
// Throws an undefined failure when it is.
void RequireDefined(const Value& value);

// As Python's json.dumps.
struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  int64_t indent = -1;  // -1 = one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Text ToJson(const Value& value, const JsonStyle& style);
// As Python's json.loads; throws a value failure. Strings are content when `is_content`.
Value FromJson(std::string_view json, bool is_content);

// Text by code points.
std::vector<size_t> CharacterStarts(std::string_view text);  // with the end as last
int64_t CharacterCount(std::string_view text);
Text MapCase(const Text& text, bool upper);
bool HasCase(char32_t c, bool upper);
Text Strip(const Text& text, const Text* characters, bool left, bool right);
Text Replace(const Text& text, std::string_view from, const Text& to, int64_t count);
Text Repeat(const Text& text, int64_t count);
Text Capitalize(const Text& text);
Text TitleCase(const Text& text);
Value PercentFormat(Interpreter& interpreter, const Text& format, const Value& values);

}  // namespace millrace::recipe::jinja
