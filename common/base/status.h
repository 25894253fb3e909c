#pragma once
// Status and StatusOr<T>: the only error type of the project. Codes are the canonical gRPC codes; Reason tells apart
// what machines must react to differently; the message is for people and says what, where and what to do. Value types,
// thread-compatible. No library throws across its boundary.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace millrace {

enum class Code : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

enum class Reason : uint8_t {
  kNone = 0,
  kOverloaded = 1,             // a bounded queue or pool is full; retry later
  kPeerLost = 2,               // the stream closed or the heartbeat stopped
  kKvEvicted = 3,              // decode gave the sequence's blocks up; re-enter at prefill, not counted as a failure
  kKvCorrupt = 4,              // a checksum refused bytes
  kShapeMismatch = 5,          // layout, model or numerics class differ between two peers
  kDeadline = 6,               // an absolute deadline passed
  kNoInstance = 7,             // no ready replica of a role
  kDraining = 8,               // the process is shutting down and takes no new work
  kContextLengthExceeded = 9,  // the prompt leaves no room
  kModelNotFound = 10,
  kUnsupported = 11,  // a feature, architecture or parameter we do not have; the message names it
  kMissing = 12,      // a required field is absent
  kBadType = 13,      // a field has the wrong JSON or config type
  kBadValue = 14,     // a field has a value out of range
  kNoSpace = 15,      // disk full, below the store's floor
};

std::string_view CodeName(Code code);        // "INVALID_ARGUMENT"
std::string_view ReasonName(Reason reason);  // "overloaded"; the metric label

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Status(Code code, Reason reason, std::string message) : code_(code), reason_(reason), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  Reason reason() const { return reason_; }
  const std::string& message() const { return message_; }
  // When the caller should ask again; unset = no advice. Milliseconds.
  std::optional<uint32_t> retry_after_ms() const { return retry_after_ms_; }
  // The request field or flag the error is about, as a path ("messages[2].content"); empty = none.
  const std::string& param() const { return param_; }

  Status& WithRetryAfterMs(uint32_t ms) & {
    retry_after_ms_ = ms;
    return *this;
  }
  Status&& WithRetryAfterMs(uint32_t ms) && {
    retry_after_ms_ = ms;
    return std::move(*this);
  }
  Status&& WithParam(std::string param) && {
    param_ = std::move(param);
    return std::move(*this);
  }
  // The same error with "prefix: " before the message.
  Status Annotate(std::string_view prefix) const;

  std::string ToString() const;  // "OK" or "UNAVAILABLE(peer_lost): message"

 private:
  Code code_ = Code::kOk;
  Reason reason_ = Reason::kNone;
  std::optional<uint32_t> retry_after_ms_;
  std::string message_;
  std::string param_;
};

inline Status OkStatus() { return {}; }
inline Status InvalidArgument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
inline Status NotFound(std::string m) { return {Code::kNotFound, std::move(m)}; }
inline Status FailedPrecondition(std::string m) { return {Code::kFailedPrecondition, std::move(m)}; }
inline Status Internal(std::string m) { return {Code::kInternal, std::move(m)}; }
inline Status Unavailable(std::string m) { return {Code::kUnavailable, std::move(m)}; }
inline Status DataLoss(std::string m) { return {Code::kDataLoss, std::move(m)}; }
inline Status Cancelled(std::string m) { return {Code::kCancelled, std::move(m)}; }
inline Status Unsupported(std::string m) { return {Code::kUnimplemented, Reason::kUnsupported, std::move(m)}; }

// "what: strerror(errno_value)" with a code that fits errno.
Status ErrnoStatus(int errno_value, std::string_view what);

template <class T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT: implicit by design
    if (status_.ok()) status_ = Internal("StatusOr built from an OK status without a value");
  }
  StatusOr(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  // Precondition: ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

#define MR_CONCAT_INNER(a, b) a##b
#define MR_CONCAT(a, b) MR_CONCAT_INNER(a, b)
#define MR_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                  \
    if (::millrace::Status mr_status = (expression); !mr_status.ok()) return mr_status; \
  } while (false)
#define MR_ASSIGN_OR_RETURN(declaration, expression) \
  MR_ASSIGN_OR_RETURN_INNER(MR_CONCAT(mr_result_, __LINE__), declaration, expression)
#define MR_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) return std::move(result).status();             \
  declaration = *std::move(result)

}  // namespace millrace
