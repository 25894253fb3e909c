#pragma once
// Strict JSON (RFC 8259) of request bodies as plain values, and the writing of JSON text.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/status.h"

namespace millrace::api {

struct Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;  // of a repeated key the last counts

struct Json {
  // Integers beyond int64 are doubles, as are all numbers with a fraction or an exponent; never infinite.
  std::variant<std::nullptr_t, bool, int64_t, double, std::string, JsonArray, JsonObject> value = nullptr;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const std::string* text() const { return std::get_if<std::string>(&value); }
  const JsonArray* array() const { return std::get_if<JsonArray>(&value); }
  const JsonObject* object() const { return std::get_if<JsonObject>(&value); }
  // Null when the member is absent or null. Precondition: object().
  const Json* Find(std::string_view key) const;
};

constexpr size_t kMaxJsonDepth = 128;
constexpr size_t kMaxJsonValues = 2'000'000;

// kInvalidArgument for anything but one JSON value: bad UTF-8, lone surrogates, NaN, trailing bytes, numbers beyond
// double, nesting beyond kMaxJsonDepth, more values than kMaxJsonValues. Messages hold none of the input.
StatusOr<Json> ParseJson(std::string_view text);

// Appends `text` as a JSON string, quotes included. Ill-formed UTF-8 becomes U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);
std::string JsonString(std::string_view text);

}  // namespace millrace::api
