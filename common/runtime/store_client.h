#pragma once
// The worker's side of the kvcache-store: looks up, loads and puts whole KV blocks. The store is an accelerator, never
// a dependency: absent, dead, stopped or slow it costs a miss or a failed put, and each call ends by its deadline.
//
// Placement: a chain of blocks lives in one store, chosen among all known addresses by rendezvous hashing of the
// chain's first key (store::PickStore), so that a hit needs one store and the loss of one store costs only its chains.
// Every call therefore names `chain`, the key of block 0 of the sequence, also when the keys begin further down.
//
// Threads: everything, callbacks included, happens on `control`. A callback runs exactly once and never from inside the
// call it belongs to. `blocking` runs checksums and the end of links (up to 1 s); a thread of its own, nothing else
// that is urgent on it. Destroy the client on `control` or after it stopped, and after `blocking` stopped; callbacks
// still pending are dropped then, and no byte of the KV memory is written after the destructor returned.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/base/status.h"
#include "common/kv/block_key.h"
#include "common/kv/block_pool.h"
#include "common/peer/addresses.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"
#include "common/transfer/transport.h"

namespace millrace::runtime {

// All outlive the client.
struct StoreClientWiring {
  Executor& control;
  Executor& blocking;
  peer::Dialer<peer::StoreProtocol>& dialer;
  const peer::AddressSource& addresses;  // asked again every heartbeat; none = no store
  transfer::Transport& transport;
  MetricRegistry& metrics;
};

struct StoreClientOptions {
  cluster::Incarnation incarnation = 0;  // of this worker
  std::string layout_digest;
  uint64_t block_bytes = 0;                      // kv::Layout::block_bytes()
  std::span<std::byte> kv_memory;                // block i at [i * block_bytes, (i + 1) * block_bytes)
  peer::MemoryAddress memory;                    // where peers read kv_memory
  peer::Liveness liveness;                       // of the streams to the stores
  Duration reconnect_least = Milliseconds(100);  // doubled after each failure
  Duration reconnect_most = Seconds(2);
  uint32_t max_queued_puts = 256;  // per store, those on the wire included
  uint32_t max_puts_on_wire = 16;  // per store
  uint32_t max_calls = 1024;       // lookups and loads at once per store; one more is a miss
};

class StoreConnection;
struct StoreClientMetrics;

class StoreClient {
 public:
  struct LookupRequest {
    kv::BlockKey chain;
    std::vector<kv::BlockKey> keys;  // consecutive blocks of one chain, parent first
    TimePoint deadline = kNever;
  };
  struct LoadRequest {
    kv::BlockKey chain;
    std::vector<kv::BlockKey> keys;      // consecutive blocks of one chain, parent first
    std::vector<kv::BlockIndex> blocks;  // as many: where each goes; held by the caller until `done`
    TimePoint deadline = kNever;
  };
  struct PutRequest {
    kv::BlockKey chain;
    kv::BlockKey key;
    kv::BlockIndex block = 0;  // held and unchanged until `done`
    uint32_t crc32c = 0;       // of the whole block
    TimePoint deadline = kNever;
  };

  StoreClient(StoreClientWiring wiring, StoreClientOptions options);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Length of the longest prefix of `keys` that the store has; 0 when it cannot tell in time.
  void Lookup(LookupRequest request, std::function<void(uint32_t present)> done);

  // Reads blocks into the KV memory. `loaded` blocks, a prefix of those asked for, are in place with their checksum
  // verified; the content of the others is undefined. When `done` runs nothing will write into any of `blocks` any
  // more: if bytes were in flight at the deadline, the link is ended first, so `done` comes at most 1 s after it.
  void LoadInto(LoadRequest request, std::function<void(uint32_t loaded)> done);

  // OK: on the store's disk and visible, or was there before. kResourceExhausted(kOverloaded): the queue here or there
  // is full; kResourceExhausted(kNoSpace); kUnavailable(kPeerLost): no store; kDeadlineExceeded(kDeadline). After
  // `done` the store may still read the page, whose new content its checksum then refuses.
  void Put(PutRequest request, std::function<void(Status)> done);

  // Stores with which calls can be made now.
  uint32_t connected() const;

 private:
  void Tick();
  void UpdateGauges();
  StoreConnection* Home(const kv::BlockKey& chain);
  Task Guarded(Task task) const;  // does nothing once this object is gone

  const StoreClientWiring wiring_;
  const StoreClientOptions options_;
  const std::unique_ptr<StoreClientMetrics> metrics_;
  std::map<std::string, std::unique_ptr<StoreConnection>> connections_;  // by address
  std::vector<std::string> addresses_;                                   // known now, sorted
  TimerId tick_ = TimerId::kNone;
  std::shared_ptr<int> alive_;
};

}  // namespace millrace::runtime
