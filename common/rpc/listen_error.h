#pragma once
#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace millrace::rpc {

// Why listening on `host`:`port`, which just failed, fails: gRPC only says that it did.
Status ListenError(const std::string& host, uint16_t port);

}  // namespace millrace::rpc
