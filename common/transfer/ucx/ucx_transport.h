#pragma once
// KV transport over UCX (1.13 and later). Two kinds of lanes:
//
//   shared memory ("sysv", "posix")   Memory that the owner's Allocate() placed there is mapped by the reader, and a
//   get
//                                     is the reader's own copy: no thread of the owner runs, a stopped owner is no
//                                     obstacle. Only between processes that share a machine and its IPC (sysv) or PID
//                                     (posix) namespace; found out by mapping, not by comparing names.
//   network ("tcp", RDMA devices)     Everything else. The reader asks with an active message, the owner checks region
//                                     and range and answers with the bytes, on its transport's thread. UCX's own
//                                     emulation of a get is not used: it reads whatever address the reader names, and
//                                     so ends the owner's process once the memory is gone.
//
// Peers are trusted to be what the control plane says; a UCX port is not for networks that are open to others
// (TransportOptions::devices chooses the network devices that it listens on).
//
// Options: lanes = UCX transport names; empty = the environment variable UCX_TLS, or all. devices = as UCX_NET_DEVICES.
// Threads: one, asleep when nothing moves. UCX's log is off unless UCX_LOG_LEVEL is set.

#include <memory>

#include "common/transfer/transport.h"

namespace millrace::transfer::ucx {

StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const TransportOptions& options);

}  // namespace millrace::transfer::ucx
