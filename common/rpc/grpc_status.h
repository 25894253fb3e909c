#pragma once
#include "common/base/status.h"

namespace grpc {
class Status;
}

namespace millrace::rpc {

// The status of a call that ended on the other side or in between; kUnavailable/kPeerLost when no server said it.
Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const Status& status);

}  // namespace millrace::rpc
