#include "common/transfer/loopback/loopback.h"

#include "common/transfer/transports/transports.h"

namespace millrace::transfer::loopback {
namespace {

constexpr TransportVariant kVariants[] = {{"memory", ""}};

Status SignalPeer(const std::string& address, PeerSignal signal) {
  switch (signal) {
    case PeerSignal::kStop:
      return SetPeerState(address, PeerState::kStopped);
    case PeerSignal::kResume:
      return SetPeerState(address, PeerState::kRunning);
    case PeerSignal::kKill:
      return SetPeerState(address, PeerState::kKilled);
  }
  return InvalidArgument("loopback: unknown signal");
}

}  // namespace

const TransportDescriptor kDescriptor = {
    .name = "loopback",
    .help = "copies within one process",
    .make = MakeLoopbackTransport,
    .variants = kVariants,
    .signal_peer = SignalPeer,
};

}  // namespace millrace::transfer::loopback
