#pragma once
// How a template fails inside the interpreter. Thrown and caught within this folder; ChatTemplate turns it into a
// Status.

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::recipe::jinja {

enum class FailureKind : uint8_t {
  kSyntax,
  kRaised,  // raise_exception: the template's author refuses the conversation
  kUndefined,
  kType,
  kValue,
  kSecurity,
  kRuntime,
  kZeroDivision,
  kOverflow,
  kLimit,  // time, depth or size that no honest template needs
};

// As Jinja2 calls it: "UndefinedError".
std::string_view FailureName(FailureKind kind);

struct Failure {
  FailureKind kind;
  std::string message;
};

[[noreturn]] inline void Fail(FailureKind kind, std::string message) { throw Failure{kind, std::move(message)}; }

}  // namespace millrace::recipe::jinja
