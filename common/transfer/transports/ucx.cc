#include "common/transfer/ucx/ucx_transport.h"

#include "common/transfer/transports/transports.h"

namespace millrace::transfer::ucx {
namespace {

constexpr TransportVariant kVariants[] = {{"shm", "sysv,posix"}, {"tcp", "tcp"}, {"all", ""}};

}  // namespace

const TransportDescriptor kDescriptor = {
    .name = "ucx",
    .help = "shared memory within a machine, TCP or RDMA between machines",
    .make = MakeUcxTransport,
    .variants = kVariants,
    .signal_peer = nullptr,
};

}  // namespace millrace::transfer::ucx
