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

}  // namespace millrace::gateway
