#pragma once
// The table of KV transports. docs/adding/transport.md says how to add one.

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/transfer/transport.h"

namespace millrace::transfer {

// A choice of lanes that the conformance suite runs the transport with.
struct TransportVariant {
  std::string_view name;   // "shm"
  std::string_view lanes;  // TransportOptions::lanes
};

// What a test does to a peer: what SIGSTOP, SIGCONT and SIGKILL do to a process.
enum class PeerSignal : uint8_t { kStop, kResume, kKill };

struct TransportDescriptor {
  std::string_view name;
  std::string_view help;  // one line
  StatusOr<std::unique_ptr<Transport>> (*make)(const TransportOptions& options);
  std::span<const TransportVariant> variants;  // at least one
  // Only for transports within one process: signals the peer of that address. Null: peers are other processes.
  Status (*signal_peer)(const std::string& address, PeerSignal signal);

  bool between_processes() const { return signal_peer == nullptr; }
};

// In the order of the folder's list.
std::span<const TransportDescriptor* const> All();

// kInvalidArgument names the transports there are.
StatusOr<std::unique_ptr<Transport>> MakeTransport(std::string_view name, const TransportOptions& options);

}  // namespace millrace::transfer
