#pragma once
// Transport within one process: each LoopbackTransport stands for a process of its own, and all of them find each other
// by address. For tests and for services that run in one process.

#include <memory>
#include <string>

#include "common/transfer/transport.h"

namespace millrace::transfer::loopback {

StatusOr<std::unique_ptr<Transport>> MakeLoopbackTransport(const TransportOptions& options);

// What a signal does to a process. Gets from a stopped peer wait until it runs again; gets from a killed one fail with
// kPeerLost, for ever.
enum class PeerState : uint8_t { kRunning, kStopped, kKilled };
Status SetPeerState(const std::string& address, PeerState state);

}  // namespace millrace::transfer::loopback
