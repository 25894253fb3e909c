#include "common/rpc/grpc_status.h"

#include <grpcpp/support/status.h>

#include "common/rpc/codec.h"

namespace millrace::rpc {

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = static_cast<int>(status.error_code());
  if (!status.error_details().empty()) return DecodeStatus(code, status.error_message(), status.error_details());
  switch (status.error_code()) {
    // What gRPC itself reports when a connection fails, is reset in the middle of a call, or the server goes away.
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::CANCELLED:
      return {Code::kUnavailable, Reason::kPeerLost, "lost the peer: " + status.error_message()};
    default:
      return DecodeStatus(code, status.error_message(), "");
  }
}

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), WireMessage(status), EncodeStatusDetails(status)};
}

}  // namespace millrace::rpc
