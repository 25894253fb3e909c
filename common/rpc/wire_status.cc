// Status on the wire: inside messages (Outcome) and at the end of a call (google.rpc.Status with a StatusDetail).
#include <algorithm>

#include "common/rpc/codec.h"
#include "common/rpc/wire.h"
#include "common/rpc/wire_fields.h"
#include "millrace/v1/status.pb.h"

namespace millrace::rpc {
namespace {

constexpr size_t kMaxStatusParamBytes = 256;
constexpr int kLastCode = static_cast<int>(Code::kUnauthenticated);
static_assert(static_cast<int>(Reason::kNoSpace) == pb::Reason_MAX, "the wire's reasons are those of Reason");

// Bytes of the valid UTF-8 sequence at the start of `text`, 0 when there is none.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool too_small = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xed && byte(1) > 0x9f;
  const bool too_large = lead == 0xf4 && byte(1) > 0x8f;
  return too_small || surrogate || too_large ? 0 : length;
}

// Valid UTF-8 of at most `limit` bytes; other bytes become '?'.
std::string CleanText(std::string_view text, size_t limit) {
  std::string out;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (out.size() + std::max<size_t>(length, 1) > limit) break;
    out.append(length == 0 ? std::string_view("?") : text.substr(0, length));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

void DetailToWire(const Status& in, pb::StatusDetail& out) {
  out.set_reason(static_cast<pb::Reason>(in.reason()));
  out.set_param(CleanText(in.param(), kMaxStatusParamBytes));
  if (in.retry_after_ms().has_value()) out.set_retry_after_ms(*in.retry_after_ms());
}

Status WithDetail(Code code, std::string message, const pb::StatusDetail& detail) {
  if (code == Code::kOk) return OkStatus();
  const Reason reason = pb::Reason_IsValid(detail.reason()) ? static_cast<Reason>(detail.reason()) : Reason::kNone;
  Status status = Status(code, reason, std::move(message)).WithParam(detail.param().substr(0, kMaxTextBytes));
  if (detail.has_retry_after_ms()) status.WithRetryAfterMs(detail.retry_after_ms());
  return status;
}

}  // namespace

std::string WireMessage(const Status& status) { return CleanText(status.message(), kMaxStatusMessageBytes); }

void ToWire(const Status& in, pb::Outcome& out) {
  out.set_code(static_cast<uint32_t>(in.code()));
  out.set_message(WireMessage(in));
  DetailToWire(in, *out.mutable_detail());
}

Status FromWire(const pb::Outcome& in, Status& out) {
  if (in.code() > kLastCode) return BadField("outcome.code", "is unknown: " + std::to_string(in.code()));
  if (!pb::Reason_IsValid(in.detail().reason())) return BadField("outcome.detail.reason", "is unknown");
  std::string message;
  MR_RETURN_IF_ERROR(CopyText("outcome.message", in.message(), message));
  out = WithDetail(static_cast<Code>(in.code()), std::move(message), in.detail());
  return OkStatus();
}

std::string EncodeStatusDetails(const Status& status) {
  if (status.ok()) return "";
  pb::StatusDetail detail;
  DetailToWire(status, detail);
  pb::RpcStatus wire;
  wire.set_code(static_cast<int>(status.code()));
  wire.set_message(WireMessage(status));
  wire.add_details()->PackFrom(detail);
  return wire.SerializeAsString();
}

Status DecodeStatus(int code, std::string_view message, std::string_view details) {
  pb::RpcStatus wire;
  pb::StatusDetail detail;
  if (wire.ParseFromArray(details.data(), static_cast<int>(std::min<size_t>(details.size(), kMaxDescriptorBytes)))) {
    for (const google::protobuf::Any& any : wire.details()) {
      if (any.Is<pb::StatusDetail>() && !any.UnpackTo(&detail)) detail.Clear();
    }
  }
  const Code known = code < 0 || code > kLastCode ? Code::kUnknown : static_cast<Code>(code);
  return WithDetail(known, std::string(message.substr(0, kMaxTextBytes)), detail);
}

}  // namespace millrace::rpc
