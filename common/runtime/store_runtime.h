#pragma once
// StoreRuntime: serves one tier of KV blocks to workers. Workers pull blocks from the read buffers here, under a lease;
// the store pulls put blocks from the workers' memory into staging here, checks them, and writes them to the tier.
//
// Threads: everything happens on `control`, which never blocks. `readers` and `writer` run the tier, `teardown` ends
// links (up to 1 s each). Destroy the runtime on `control` or after it stopped, and after the other executors stopped.
//
// Bounds: puts in flight, staging and read buffers are fixed; beyond them a put is refused with kOverloaded and a load
// is answered with a shorter prefix. A worker that is silent, whose stream ended, or that does not give a block it
// announced loses its link and its leases; staging that its link may still write into is used again only after the link
// ended.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/base/status.h"
#include "common/peer/liveness.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"
#include "common/store/buffer_arena.h"
#include "common/store/tier.h"
#include "common/transfer/transport.h"

namespace millrace::runtime {

// All outlive the runtime.
struct StoreRuntimeWiring {
  Executor& control;
  std::vector<Executor*> readers;  // at least one; loads take turns
  Executor& writer;
  Executor& teardown;
  store::Tier& tier;
  transfer::Transport& transport;
  MetricRegistry& metrics;
};

struct StoreRuntimeOptions {
  cluster::Incarnation incarnation = 0;
  uint64_t read_bytes = 256ull << 20;     // of read buffers
  uint64_t staging_bytes = 128ull << 20;  // of puts in flight
  uint32_t max_load_blocks = 16;          // most keys in one LoadBlocks
  uint32_t max_puts_in_flight = 64;
  uint32_t max_batch_puts = 16;  // written to the tier at once
  uint32_t max_sessions = 1024;
  Duration lease_time = Seconds(30);
  Duration pull_deadline = Seconds(2);  // for one block from a worker
  store::RetentionClass retention = store::RetentionClass::kChat;
  peer::Liveness liveness;
};

class StoreRuntime final : public peer::Service<peer::StoreProtocol> {
 public:
  // Fails when the buffers cannot be had.
  static StatusOr<std::unique_ptr<StoreRuntime>> Make(StoreRuntimeWiring wiring, StoreRuntimeOptions options);
  ~StoreRuntime() override;

  // Begins heartbeats, liveness and gauges. Once, on `control` or before it starts.
  void Start();
  // Refuses new puts with kDraining and calls `done` once those under way are finished. Reads go on.
  void Drain(std::function<void()> done);

  peer::StreamHandler<peer::StoreProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::StoreProtocol>> stream) override;

  size_t sessions() const { return sessions_.size(); }
  size_t leases() const { return leases_.size(); }
  size_t puts_in_flight() const { return puts_.size(); }
  // As the tier last said; refreshed a few times a second.
  const store::TierStats& tier_stats() const { return tier_stats_; }

 private:
  using SessionId = uint64_t;
  using PutId = uint64_t;

  struct Session {
    Session(std::unique_ptr<peer::ServerStream<peer::StoreProtocol>> s, const peer::Liveness& rules, TimePoint now)
        : stream(std::move(s)), liveness(rules, now) {}
    std::unique_ptr<peer::ServerStream<peer::StoreProtocol>> stream;
    peer::LivenessMonitor liveness;
    std::string layout_digest;
    uint64_t block_bytes = 0;              // 0 before its hello
    std::shared_ptr<transfer::Link> link;  // only here and in the task that ends it
    transfer::RemoteRegion region{};
    std::set<PutId> pulls;
    std::set<uint64_t> leases;
  };
  struct PutUnderWay {
    SessionId session = 0;
    uint64_t tag = 0;
    kv::BlockKey key;
    uint32_t crc32c = 0;
    uint64_t staging = 0;  // offset
    uint64_t bytes = 0;
    TimerId deadline = TimerId::kNone;
    bool orphaned = false;  // its session ended during the pull
  };
  struct Lease {
    SessionId session = 0;
    std::vector<uint64_t> buffers;
    TimePoint expires;
  };
  struct ReadResult {
    SessionId session = 0;
    uint64_t tag = 0;
    std::vector<uint64_t> buffers;
    std::vector<uint32_t> crcs;  // of the first so many buffers
  };
  struct Metrics;

  StoreRuntime(StoreRuntimeWiring wiring, StoreRuntimeOptions options, std::unique_ptr<transfer::Memory> read_memory,
               std::unique_ptr<transfer::Region> read_region, std::unique_ptr<transfer::Memory> staging_memory);

  void OnMessage(SessionId id, peer::StoreProtocol::Up message);
  void OnHello(SessionId id, const peer::StoreHello& hello);
  Status Welcome(Session& session, const peer::StoreHello& hello);
  void OnLookup(Session& session, const peer::LookupBlocks& lookup);
  void OnLoad(SessionId id, Session& session, peer::LoadBlocks load);
  void OnRead(ReadResult result);
  void OnPut(SessionId id, Session& session, const peer::PutBlock& put);
  void OnPulled(PutId id, const Status& status);
  void OnPullDeadline(PutId id);
  void PumpWriter();
  void OnWritten(const std::vector<PutId>& ids, const std::vector<Status>& statuses);
  void FinishPut(PutId id, const Status& status);
  void Refuse(Session& session, uint64_t tag, Status status);
  void EndSession(SessionId id, const Status& status);
  void OnLinkGone(const std::vector<PutId>& orphans);
  void ReleaseLease(uint64_t id);
  void Tick();
  void AskTierStats();
  void OnTierStats(const store::TierStats& stats);
  void UpdateGauges();
  void CheckDrained();
  // A task that does nothing once this object is gone.
  Task Guarded(Task task) const;
  std::span<std::byte> Staging(const PutUnderWay& put);

  const StoreRuntimeWiring wiring_;
  const StoreRuntimeOptions options_;
  const std::unique_ptr<Metrics> metrics_;
  const std::unique_ptr<transfer::Memory> read_memory_;
  const std::unique_ptr<transfer::Region> read_region_;
  const std::unique_ptr<transfer::Memory> staging_memory_;
  store::BufferArena read_buffers_;
  store::BufferArena staging_;

  uint64_t next_id_ = 1;  // of sessions, puts and leases
  std::map<SessionId, Session> sessions_;
  std::map<PutId, PutUnderWay> puts_;
  std::map<uint64_t, Lease> leases_;
  std::deque<PutId> writable_;  // pulled, waiting for the writer
  bool writing_ = false;
  size_t next_reader_ = 0;
  uint32_t reads_under_way_ = 0;
  uint32_t links_ending_ = 0;
  uint64_t progress_ = 0;  // blocks read or written
  store::TierStats tier_stats_;
  bool asking_stats_ = false;
  TimerId tick_ = TimerId::kNone;
  std::function<void()> drained_;
  bool draining_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace millrace::runtime
