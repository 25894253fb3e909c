#include "common/base/status.h"

#include <cerrno>
#include <cstring>

namespace millrace {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnknown:
      return "UNKNOWN";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kAborted:
      return "ABORTED";
    case Code::kOutOfRange:
      return "OUT_OF_RANGE";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDataLoss:
      return "DATA_LOSS";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "INVALID_CODE";
}

std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "none";
    case Reason::kOverloaded:
      return "overloaded";
    case Reason::kPeerLost:
      return "peer_lost";
    case Reason::kKvEvicted:
      return "kv_evicted";
    case Reason::kKvCorrupt:
      return "kv_corrupt";
    case Reason::kShapeMismatch:
      return "shape_mismatch";
    case Reason::kDeadline:
      return "deadline";
    case Reason::kNoInstance:
      return "no_instance";
    case Reason::kDraining:
      return "draining";
    case Reason::kContextLengthExceeded:
      return "context_length_exceeded";
    case Reason::kModelNotFound:
      return "model_not_found";
    case Reason::kUnsupported:
      return "unsupported";
    case Reason::kMissing:
      return "missing";
    case Reason::kBadType:
      return "bad_type";
    case Reason::kBadValue:
      return "bad_value";
    case Reason::kNoSpace:
      return "no_space";
  }
  return "invalid_reason";
}

Status Status::Annotate(std::string_view prefix) const {
  Status result = *this;
  if (!ok()) result.message_ = std::string(prefix) + ": " + message_;
  return result;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  std::string text(CodeName(code_));
  if (reason_ != Reason::kNone) text.append("(").append(ReasonName(reason_)).append(")");
  if (!param_.empty()) text.append(" [").append(param_).append("]");
  return text.append(": ").append(message_);
}

Status ErrnoStatus(int errno_value, std::string_view what) {
  std::string message = std::string(what) + ": " + std::strerror(errno_value);
  switch (errno_value) {
    case ENOENT:
      return {Code::kNotFound, std::move(message)};
    case EEXIST:
      return {Code::kAlreadyExists, std::move(message)};
    case EACCES:
    case EPERM:
      return {Code::kPermissionDenied, std::move(message)};
    case ENOSPC:
    case EDQUOT:
      return {Code::kResourceExhausted, Reason::kNoSpace, std::move(message)};
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return {Code::kResourceExhausted, std::move(message)};
    case EINVAL:
      return {Code::kInvalidArgument, std::move(message)};
    case EADDRINUSE:
      return {Code::kFailedPrecondition, std::move(message)};
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ETIMEDOUT:
      return {Code::kUnavailable, std::move(message)};
    default:
      return {Code::kInternal, std::move(message)};
  }
}

}  // namespace millrace
