#pragma once
// Transport: how one process reads another's memory. Bytes are pulled by the process that owns the destination; nobody
// writes into another's memory (docs/design). Liveness is the control plane's word: a transport may never notice that a
// peer stopped, so every caller keeps its own deadline and ends a link by destroying it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace millrace::transfer {

// Memory of this process that peers may read while the object lives. The memory must outlive it.
class Region {
 public:
  // Afterwards the transport does not touch the memory any more, whatever peers still ask for; it waits at most 1 s.
  virtual ~Region() = default;
  // Opaque bytes to hand to a peer over the control plane; that peer's Link::Import takes them.
  virtual const std::string& descriptor() const = 0;
};

// Memory of this process made by its transport: page-aligned, zeroed, backed lazily. Outlives the regions in it.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::span<std::byte> bytes() = 0;
};

enum class RemoteRegion : uint32_t {};

// Called exactly once, on the transport's own thread: must not block and must not destroy the link or the transport. OK
// means that all bytes are in the destination; what they are worth, the caller's checksum says.
using Completion = std::function<void(Status)>;

struct LinkInfo {
  std::string transport;           // "ucx", "loopback"
  std::vector<std::string> lanes;  // what the regions imported so far are read over, e.g. "sysv", "tcp"; sorted
  bool same_host = false;
  std::string error_mode;  // "peer": a lane that notices when the peer's process is gone; "none": no such lane
};

// What an operator may choose; the words are each transport's own. Empty = its defaults.
struct TransportOptions {
  std::string lanes;           // comma-separated, e.g. "sysv,tcp": what may be used
  std::string devices;         // comma-separated network devices, e.g. "lo"
  bool local_only = false;     // all peers are on this host: its default needs no other device than loopback
  uint32_t max_pending = 256;  // gets of one link at once
};

// A connection to one incarnation of one peer. Thread-safe.
class Link {
 public:
  // Blocks until it is certain that no byte of any destination will be written any more; gets still pending complete
  // with kCancelled first. Returns within 1 s even when the peer is stopped or gone.
  virtual ~Link() = default;

  // kInvalidArgument when the descriptor is not one of this peer's.
  virtual StatusOr<RemoteRegion> Import(const std::string& descriptor) = 0;

  // Reads [offset, offset + into.size()) of the peer's region. `into` must stay valid until `done` was called. Gets may
  // complete in any order. Failures arrive through `done`: kOutOfRange for a range outside the region (nothing is
  // read), kResourceExhausted for more than max_pending() at once, kUnavailable with kPeerLost when the connection
  // broke (this link stays broken; connect again), kNotFound when the peer says that it no longer offers the region.
  virtual void Get(RemoteRegion region, uint64_t offset, std::span<std::byte> into, Completion done) = 0;

  virtual LinkInfo info() const = 0;
  virtual uint32_t max_pending() const = 0;
};

// One per process; outlives its memories, regions and links. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  // Opaque bytes by which peers Connect() to this process; at most 4 KiB. Carries the host, so that a peer knows its
  // own.
  virtual const std::string& address() const = 0;
  // Memory that peers read the fastest way there is. Registering other memory works too, but its bytes may have to be
  // sent by this process when a peer asks. kResourceExhausted when there is no room.
  virtual StatusOr<std::unique_ptr<Memory>> Allocate(size_t size) = 0;
  // `memory` may be a part of what Allocate() gave.
  virtual StatusOr<std::unique_ptr<Region>> Register(std::span<std::byte> memory) = 0;
  // Does not wait for the peer. kInvalidArgument when the address is malformed or of another kind of transport.
  virtual StatusOr<std::unique_ptr<Link>> Connect(const std::string& peer_address) = 0;
};

}  // namespace millrace::transfer
