#include "common/gateway/error_table.h"

namespace millrace::gateway {

namespace {

constexpr const char* kInvalid = "invalid_request_error";
constexpr const char* kServer = "server_error";
constexpr const char* kRate = "rate_limit_error";

struct ReasonRow {
  Reason reason;
  ErrorRow row;
};
constexpr ReasonRow kByReason[] = {
    {Reason::kOverloaded, {429, kRate, "rate_limit_exceeded", RetryClass::kLater}},
    {Reason::kPeerLost, {503, kServer, "service_unavailable", RetryClass::kElsewhere}},
    {Reason::kKvEvicted, {503, kServer, "service_unavailable", RetryClass::kElsewhereFree}},
    {Reason::kKvCorrupt, {500, kServer, "internal_error", RetryClass::kElsewhere}},
    {Reason::kShapeMismatch, {500, kServer, "internal_error", RetryClass::kElsewhere}},
    {Reason::kDeadline, {504, kServer, "internal_error", RetryClass::kElsewhere}},
    {Reason::kNoInstance, {503, kServer, "no_instance", RetryClass::kLater}},
    {Reason::kDraining, {503, kServer, "draining", RetryClass::kElsewhereFree}},
    {Reason::kContextLengthExceeded, {400, kInvalid, "context_length_exceeded", RetryClass::kNever}},
    {Reason::kModelNotFound, {404, kInvalid, "model_not_found", RetryClass::kNever}},
    {Reason::kUnsupported, {400, kInvalid, "unsupported_parameter", RetryClass::kNever}},
    {Reason::kMissing, {400, kInvalid, "missing_required_parameter", RetryClass::kNever}},
    {Reason::kBadType, {400, kInvalid, "invalid_type", RetryClass::kNever}},
    {Reason::kBadValue, {400, kInvalid, "invalid_value", RetryClass::kNever}},
    {Reason::kNoSpace, {500, kServer, "internal_error", RetryClass::kElsewhere}},
};

struct CodeRow {
  Code code;
  ErrorRow row;
};
constexpr CodeRow kByCode[] = {
    {Code::kInvalidArgument, {400, kInvalid, nullptr, RetryClass::kNever}},
    {Code::kOutOfRange, {400, kInvalid, nullptr, RetryClass::kNever}},
    {Code::kFailedPrecondition, {400, kInvalid, nullptr, RetryClass::kNever}},
    {Code::kUnauthenticated, {401, kInvalid, "invalid_api_key", RetryClass::kNever}},
    {Code::kPermissionDenied, {403, kInvalid, nullptr, RetryClass::kNever}},
    {Code::kNotFound, {404, kInvalid, nullptr, RetryClass::kElsewhere}},
    {Code::kUnimplemented, {501, kServer, "internal_error", RetryClass::kNever}},
    {Code::kResourceExhausted, {503, kServer, "service_unavailable", RetryClass::kElsewhere}},
    {Code::kDeadlineExceeded, {504, kServer, "internal_error", RetryClass::kElsewhere}},
    {Code::kCancelled, {503, kServer, "service_unavailable", RetryClass::kElsewhere}},
    {Code::kAborted, {503, kServer, "service_unavailable", RetryClass::kElsewhere}},
    {Code::kUnavailable, {503, kServer, "service_unavailable", RetryClass::kElsewhere}},
    {Code::kUnknown, {500, kServer, "internal_error", RetryClass::kElsewhere}},
    {Code::kInternal, {500, kServer, "internal_error", RetryClass::kElsewhere}},
    {Code::kDataLoss, {500, kServer, "internal_error", RetryClass::kElsewhere}},
    {Code::kAlreadyExists, {500, kServer, "internal_error", RetryClass::kElsewhere}},
};
constexpr ErrorRow kOther{500, kServer, "internal_error", RetryClass::kElsewhere};

}  // namespace

const char* RetryClassName(RetryClass retry) {
  switch (retry) {
    case RetryClass::kNever:
      return "never";
    case RetryClass::kElsewhere:
      return "elsewhere";
    case RetryClass::kElsewhereFree:
      return "elsewhere_free";
    case RetryClass::kLater:
      return "later";
  }
  return "?";
}

const ErrorRow& FindErrorRow(const Status& status) {
  for (const ReasonRow& entry : kByReason) {
    if (entry.reason == status.reason()) return entry.row;
  }
  for (const CodeRow& entry : kByCode) {
    if (entry.code == status.code()) return entry.row;
  }
  return kOther;
}

Status ForClient(const Status& status) {
  const uint16_t http_status = FindErrorRow(status).http_status;
  const char* text = "The request failed inside the server. Its log has the cause by the request's id.";
  if (status.reason() == Reason::kNoInstance) {
    text = "No worker is ready for the model. Try again shortly.";
  } else if (status.reason() == Reason::kModelNotFound) {
    text = "No worker serves the model.";
  } else if (http_status == 429) {
    text = "The workers of the model are full. Try again shortly.";
  } else if (http_status == 503) {
    text = "The workers of the request were lost. Try again shortly.";
  } else if (http_status == 504) {
    text = "The request took too long. Try again.";
  } else if (http_status < 500) {
    return status;
  }
  Status plain = Status(status.code(), status.reason(), text).WithParam(status.param());
  if (status.retry_after_ms()) plain.WithRetryAfterMs(*status.retry_after_ms());
  return plain;
}

}  // namespace millrace::gateway
