#include "common/api/field_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace millrace::api {

namespace {

std::string Shortest(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

bool IsNumber(const Json& value) {
  return std::holds_alternative<int64_t>(value.value) || std::holds_alternative<double>(value.value);
}

}  // namespace

std::optional<int64_t> AsInteger(const Json& value) {
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return *integer;
  if (const auto* number = std::get_if<double>(&value.value)) {
    if (std::trunc(*number) == *number && std::fabs(*number) <= 9007199254740992.0) {
      return static_cast<int64_t>(*number);
    }
  }
  return std::nullopt;
}

std::string FieldReader::PathOf(std::string_view name) const {
  std::string path = path_;
  if (!path.empty() && !name.empty()) path += '.';
  path += name;
  return path;
}

const Json* FieldReader::Find(std::string_view name) const { return ok() ? object_.Find(name) : nullptr; }

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (const bool* boolean = value->boolean()) return *boolean;
  FailType(name, "a boolean");
  return std::nullopt;
}

std::optional<double> FieldReader::Number(std::string_view name, double least, double most) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!IsNumber(*value)) {
    FailType(name, "a number");
    return std::nullopt;
  }
  const auto* integer = std::get_if<int64_t>(&value->value);
  double number = integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value->value);
  if (number >= least && number <= most) return number;
  Fail(name, Reason::kBadValue,
       "Invalid value for '" + PathOf(name) + "': must be from " + Shortest(least) + " to " + Shortest(most) + ".");
  return std::nullopt;
}

std::optional<int64_t> FieldReader::Integer(std::string_view name, int64_t least, int64_t most) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> integer = AsInteger(*value);
  bool whole = integer.has_value() ||
               (IsNumber(*value) && std::trunc(std::get<double>(value->value)) == std::get<double>(value->value));
  if (!whole) {
    FailType(name, "an integer");
  } else if (!integer || *integer < least || *integer > most) {
    Fail(name, Reason::kBadValue,
         "Invalid value for '" + PathOf(name) + "': must be an integer from " + std::to_string(least) + " to " +
             std::to_string(most) + ".");
    integer.reset();
  }
  return integer;
}

std::optional<std::string> FieldReader::Text(std::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (const std::string* text = value->text()) return *text;
  FailType(name, "a string");
  return std::nullopt;
}

std::optional<std::string> FieldReader::Choice(std::string_view name, std::initializer_list<std::string_view> choices) {
  std::optional<std::string> text = Text(name);
  if (!text) return text;
  if (std::find(choices.begin(), choices.end(), *text) != choices.end()) return text;
  std::string message = "Invalid value for '" + PathOf(name) + "': must be one of";
  const char* separator = " ";
  for (std::string_view choice : choices) {
    message += separator;
    message += "'" + std::string(choice) + "'";
    separator = ", ";
  }
  Fail(name, Reason::kBadValue, message + ".");
  return std::nullopt;
}

void FieldReader::Fail(std::string_view name, Reason reason, std::string message) {
  FailWith(Status(Code::kInvalidArgument, reason, std::move(message)).WithParam(PathOf(name)));
}

void FieldReader::FailMissing(std::string_view name) {
  Fail(name, Reason::kMissing, "Missing required parameter: '" + PathOf(name) + "'.");
}

void FieldReader::FailType(std::string_view name, std::string_view expected) {
  Fail(name, Reason::kBadType, "Invalid type for '" + PathOf(name) + "': expected " + std::string(expected) + ".");
}

void FieldReader::FailTooMany(std::string_view name, size_t most, std::string_view of_what) {
  Fail(name, Reason::kBadValue,
       "'" + PathOf(name) + "' must have at most " + std::to_string(most) + " " + std::string(of_what) + ".");
}

void FieldReader::FailUnsupported(std::string_view name, std::string_view what) {
  Fail(name, Reason::kUnsupported, "Unsupported parameter: '" + PathOf(name) + "': " + std::string(what) + ".");
}

void FieldReader::FailWith(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

}  // namespace millrace::api
