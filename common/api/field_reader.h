#pragma once
// Reads typed fields of a JSON object, and keeps the first error with its full path. Null counts as absent. Messages
// name the field and the rule, never the value.

#include <optional>
#include <string>
#include <string_view>

#include "common/api/json.h"

namespace millrace::api {

class FieldReader {
 public:
  // `path` goes before every field's name: "" or "messages[2]". `object` must be an object and outlive the reader.
  FieldReader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  // Null when absent, null, or after an error.
  const Json* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return object_.Find(name) != nullptr; }

  std::optional<bool> Bool(std::string_view name);
  std::optional<double> Number(std::string_view name, double least, double most);
  // Takes 5.0 for 5.
  std::optional<int64_t> Integer(std::string_view name, int64_t least, int64_t most);
  std::optional<std::string> Text(std::string_view name);
  std::optional<std::string> Choice(std::string_view name, std::initializer_list<std::string_view> choices);

  // The first error of all counts.
  void Fail(std::string_view name, Reason reason, std::string message);
  void FailMissing(std::string_view name);
  void FailType(std::string_view name, std::string_view expected);
  void FailTooMany(std::string_view name, size_t most, std::string_view of_what);
  void FailUnsupported(std::string_view name, std::string_view what);
  void FailWith(Status status);

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  std::string PathOf(std::string_view name) const;

 private:
  const Json& object_;
  const std::string path_;
  Status status_;
};

// The integer that `value` is, 5.0 included; nullopt when it is none of int64.
std::optional<int64_t> AsInteger(const Json& value);

}  // namespace millrace::api
