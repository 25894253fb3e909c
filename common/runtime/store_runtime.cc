#include "common/runtime/store_runtime.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/log.h"

namespace millrace::runtime {
namespace {

constexpr uint64_t kBufferAlign = 4096;
// A peer that does not read its heartbeats gets no more of them until it does.
constexpr size_t kMaxPendingHeartbeats = 16;

Status Overloaded(std::string message) { return {Code::kResourceExhausted, Reason::kOverloaded, std::move(message)}; }

}  // namespace

struct StoreRuntime::Metrics {
  explicit Metrics(MetricRegistry& registry)
      : sessions(registry.AddGauge("millrace_store_sessions", "Workers connected")),
        links(registry.AddGauge("millrace_store_open_links", "Links to workers' memory, those being ended included")),
        leases(registry.AddGauge("millrace_store_leases", "Loads that workers have not released yet")),
        pinned(registry.AddGauge("millrace_store_pinned_buffers", "Read buffers in use")),
        puts(registry.AddGauge("millrace_store_puts_in_flight", "Puts being pulled or written")),
        blocks(registry.AddGauge("millrace_store_blocks", "Blocks in the index")),
        disk_bytes(registry.AddGauge("millrace_store_disk_bytes", "Bytes of segment files")),
        capacity_bytes(registry.AddGauge("millrace_store_capacity_bytes", "Most bytes of segment files")),
        free_bytes(registry.AddGauge("millrace_store_free_bytes", "Free bytes of the disk")),
        guarantee_full(registry.AddGauge("millrace_store_guarantee_full",
                                         "1 when puts are refused because all blocks are within their guarantee")),
        read_only(registry.AddGauge("millrace_store_read_only",
                                    "1 when puts are refused because the index can't be written: the disk is full")),
        hits(registry.AddCounter("millrace_store_hits_total", "Blocks asked for by lookups and there")),
        misses(registry.AddCounter("millrace_store_misses_total", "Blocks asked for by lookups and not there")),
        loaded(registry.AddCounter("millrace_store_loaded_blocks_total", "Blocks read for workers")),
        load_failed(registry.AddCounter("millrace_store_load_failed_blocks_total",
                                        "Blocks asked for by loads and not given: missing, damaged or no buffer")),
        put(registry.AddCounter("millrace_store_put_blocks_total", "Blocks written")),
        duplicates(registry.AddCounter("millrace_store_put_duplicates_total", "Puts of blocks that were there")),
        evicted(registry.AddCounter("millrace_store_evicted_blocks_total", "Blocks given up before they expired")),
        expired(registry.AddCounter("millrace_store_expired_blocks_total", "Blocks removed because they expired")),
        leases_expired(registry.AddCounter("millrace_store_leases_expired_total", "Leases ended by their time")),
        corrupt_disk(Corrupt(registry, "disk")),
        corrupt_transfer(Corrupt(registry, "transfer")) {
    for (const Reason reason : {Reason::kNone, Reason::kOverloaded, Reason::kNoSpace, Reason::kKvCorrupt,
                                Reason::kDraining, Reason::kPeerLost, Reason::kDeadline}) {
      const std::string label = reason == Reason::kNone ? "other" : std::string(ReasonName(reason));
      refused[reason] =
          &registry.AddCounter("millrace_store_put_refused_total", "Puts that failed", {{"reason", label}});
    }
  }
  static Counter& Corrupt(MetricRegistry& registry, const std::string& where) {
    return registry.AddCounter("millrace_store_corrupt_blocks_total", "Blocks refused by their checksum",
                               {{"where", where}});
  }
  void Refused(const Status& status) {
    const auto counter = refused.find(status.reason());
    (counter == refused.end() ? refused[Reason::kNone] : counter->second)->Add();
  }

  Gauge &sessions, &links, &leases, &pinned, &puts, &blocks, &disk_bytes, &capacity_bytes, &free_bytes, &guarantee_full,
      &read_only;
  Counter &hits, &misses, &loaded, &load_failed, &put, &duplicates, &evicted, &expired, &leases_expired;
  Counter &corrupt_disk, &corrupt_transfer;
  std::map<Reason, Counter*> refused;
};

StatusOr<std::unique_ptr<StoreRuntime>> StoreRuntime::Make(StoreRuntimeWiring wiring, StoreRuntimeOptions options) {
  MR_CHECK(!wiring.readers.empty());
  MR_ASSIGN_OR_RETURN(auto read_memory, wiring.transport.Allocate(options.read_bytes));
  MR_ASSIGN_OR_RETURN(auto read_region, wiring.transport.Register(read_memory->bytes()));
  MR_ASSIGN_OR_RETURN(auto staging_memory, wiring.transport.Allocate(options.staging_bytes));
  return std::unique_ptr<StoreRuntime>(new StoreRuntime(std::move(wiring), options, std::move(read_memory),
                                                        std::move(read_region), std::move(staging_memory)));
}

StoreRuntime::StoreRuntime(StoreRuntimeWiring wiring, StoreRuntimeOptions options,
                           std::unique_ptr<transfer::Memory> read_memory, std::unique_ptr<transfer::Region> read_region,
                           std::unique_ptr<transfer::Memory> staging_memory)
    : wiring_(std::move(wiring)),
      options_(options),
      metrics_(std::make_unique<Metrics>(wiring_.metrics)),
      read_memory_(std::move(read_memory)),
      read_region_(std::move(read_region)),
      staging_memory_(std::move(staging_memory)),
      read_buffers_(options_.read_bytes, kBufferAlign),
      staging_(options_.staging_bytes, kBufferAlign) {}

// Links end before the memory that they write into.
StoreRuntime::~StoreRuntime() {
  wiring_.control.Cancel(tick_);
  for (auto& [id, put] : puts_) wiring_.control.Cancel(put.deadline);
  sessions_.clear();
}

Task StoreRuntime::Guarded(Task task) const {
  return [alive = std::weak_ptr<int>(alive_), task = std::move(task)] {
    if (alive.lock() != nullptr) task();
  };
}

std::span<std::byte> StoreRuntime::Staging(const PutUnderWay& put) {
  return staging_memory_->bytes().subspan(put.staging, put.bytes);
}

void StoreRuntime::Start() { Tick(); }

void StoreRuntime::Drain(std::function<void()> done) {
  draining_ = true;
  drained_ = std::move(done);
  CheckDrained();
}

void StoreRuntime::CheckDrained() {
  if (!drained_ || !puts_.empty()) return;
  wiring_.control.Post(Guarded(std::exchange(drained_, nullptr)));
}

// ---- sessions ------------------------------------------------------------------------------------------------------

peer::StreamHandler<peer::StoreProtocol::Up> StoreRuntime::Accept(
    std::unique_ptr<peer::ServerStream<peer::StoreProtocol>> stream) {
  if (sessions_.size() >= options_.max_sessions) {
    stream->Close(Overloaded("this store has all the workers it can serve"));
    return {};
  }
  const SessionId id = next_id_++;
  sessions_.try_emplace(id, std::move(stream), options_.liveness, wiring_.control.Now());
  UpdateGauges();
  return {[this, id](peer::StoreProtocol::Up message) { OnMessage(id, std::move(message)); },
          [this, id](Status) { EndSession(id, OkStatus()); }};
}

void StoreRuntime::OnMessage(SessionId id, peer::StoreProtocol::Up message) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  if (const auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return session.liveness.Heard(*heartbeat);
  session.liveness.Heard();
  if (const auto* hello = std::get_if<peer::StoreHello>(&message)) return OnHello(id, *hello);
  if (session.block_bytes == 0) return EndSession(id, InvalidArgument("a store stream begins with a hello"));
  if (const auto* lookup = std::get_if<peer::LookupBlocks>(&message)) return OnLookup(session, *lookup);
  if (auto* load = std::get_if<peer::LoadBlocks>(&message)) return OnLoad(id, session, std::move(*load));
  if (const auto* put = std::get_if<peer::PutBlock>(&message)) return OnPut(id, session, *put);
  const uint64_t lease = std::get<peer::ReleaseLease>(message).lease;
  if (session.leases.contains(lease)) ReleaseLease(lease);
}

void StoreRuntime::OnHello(SessionId id, const peer::StoreHello& hello) {
  Session& session = sessions_.at(id);
  const Status status = Welcome(session, hello);
  if (!status.ok()) {
    Log(LogLevel::kWarning, "store_worker_refused", {{"error", status.ToString()}});
    return EndSession(id, status);
  }
  const uint64_t fitting = std::max<uint64_t>(1, options_.read_bytes / 2 / session.block_bytes);
  session.stream->Send(peer::StoreWelcome{
      .incarnation = options_.incarnation,
      .memory = {wiring_.transport.address(), read_region_->descriptor()},
      .max_load_blocks = static_cast<uint32_t>(std::min<uint64_t>(options_.max_load_blocks, fitting))});
  Log(LogLevel::kInfo, "store_worker_joined", {{"incarnation", hello.incarnation}, {"block_bytes", hello.block_bytes}});
  UpdateGauges();
}

Status StoreRuntime::Welcome(Session& session, const peer::StoreHello& hello) {
  if (session.block_bytes != 0) return InvalidArgument("a second hello on one store stream");
  if (hello.block_bytes == 0 || hello.block_bytes > options_.staging_bytes || hello.block_bytes > options_.read_bytes) {
    return InvalidArgument("blocks of " + std::to_string(hello.block_bytes) +
                           " bytes do not fit this store's buffers: raise --read-memory and --staging-memory");
  }
  for (const auto& [id, other] : sessions_) {
    if (other.block_bytes != 0 && other.layout_digest == hello.layout_digest &&
        other.block_bytes != hello.block_bytes) {
      return {Code::kFailedPrecondition, Reason::kShapeMismatch,
              "another worker of the same layout has blocks of " + std::to_string(other.block_bytes) + " bytes"};
    }
  }
  MR_ASSIGN_OR_RETURN(std::shared_ptr<transfer::Link> link, wiring_.transport.Connect(hello.memory.transport_address));
  MR_ASSIGN_OR_RETURN(session.region, link->Import(hello.memory.region_descriptor));
  session.link = std::move(link);
  session.layout_digest = hello.layout_digest;
  session.block_bytes = hello.block_bytes;
  return OkStatus();
}

void StoreRuntime::EndSession(SessionId id, const Status& status) {
  auto node = sessions_.extract(id);
  if (node.empty()) return;
  Session& session = node.mapped();
  session.stream->Close(status);
  while (!session.leases.empty()) {
    const uint64_t lease = *session.leases.begin();
    session.leases.erase(lease);
    ReleaseLease(lease);
  }
  std::vector<PutId> orphans(session.pulls.begin(), session.pulls.end());
  for (const PutId put : orphans) {
    wiring_.control.Cancel(puts_.at(put).deadline);
    puts_.at(put).orphaned = true;
  }
  if (session.link != nullptr) {
    ++links_ending_;
    wiring_.teardown.Post([link = std::move(session.link), &control = wiring_.control,
                           gone = Guarded([this, orphans = std::move(orphans)] { OnLinkGone(orphans); })]() mutable {
      link.reset();
      control.Post(std::move(gone));
    });
  }
  UpdateGauges();
}

void StoreRuntime::OnLinkGone(const std::vector<PutId>& orphans) {
  --links_ending_;
  for (const PutId id : orphans) {
    FinishPut(id, Status(Code::kUnavailable, Reason::kPeerLost, "the worker is gone"));
  }
  UpdateGauges();
}

// ---- reads ---------------------------------------------------------------------------------------------------------

void StoreRuntime::OnLookup(Session& session, const peer::LookupBlocks& lookup) {
  const uint32_t present = wiring_.tier.ContainsPrefix(lookup.keys);
  metrics_->hits.Add(present);
  metrics_->misses.Add(static_cast<double>(lookup.keys.size() - present));
  session.stream->Send(peer::LookupDone{.tag = lookup.tag, .present = present});
}

void StoreRuntime::OnLoad(SessionId id, Session& session, peer::LoadBlocks load) {
  const size_t asked = load.keys.size();
  load.keys.resize(std::min<size_t>(asked, options_.max_load_blocks));
  load.keys.resize(wiring_.tier.ContainsPrefix(load.keys));
  ReadResult result{.session = id, .tag = load.tag};
  while (result.buffers.size() < load.keys.size()) {
    const auto buffer = read_buffers_.Allocate(session.block_bytes);
    if (!buffer.has_value()) break;
    result.buffers.push_back(*buffer);
  }
  load.keys.resize(result.buffers.size());
  metrics_->load_failed.Add(static_cast<double>(asked - load.keys.size()));
  if (load.keys.empty()) return session.stream->Send(peer::LoadDone{.tag = load.tag});
  ++reads_under_way_;
  Executor& reader = *wiring_.readers[next_reader_++ % wiring_.readers.size()];
  reader.Post([this, alive = std::weak_ptr<int>(alive_), &tier = wiring_.tier, &control = wiring_.control,
               memory = read_memory_->bytes(), bytes = session.block_bytes, keys = std::move(load.keys),
               result = std::move(result)]() mutable {
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto crc32c = tier.Get(keys[i], memory.subspan(result.buffers[i], bytes));
      if (!crc32c.ok()) break;
      result.crcs.push_back(*crc32c);
    }
    control.Post([this, alive = std::move(alive), result = std::move(result)]() mutable {
      if (alive.lock() != nullptr) OnRead(std::move(result));
    });
  });
  UpdateGauges();
}

void StoreRuntime::OnRead(ReadResult result) {
  --reads_under_way_;
  ++progress_;
  const auto session = sessions_.find(result.session);
  const size_t kept = session == sessions_.end() ? 0 : result.crcs.size();
  for (size_t i = kept; i < result.buffers.size(); ++i) read_buffers_.Release(result.buffers[i]);
  metrics_->load_failed.Add(static_cast<double>(result.buffers.size() - result.crcs.size()));
  metrics_->loaded.Add(static_cast<double>(result.crcs.size()));
  if (session != sessions_.end()) {
    peer::LoadDone done{.tag = result.tag};
    for (size_t i = 0; i < kept; ++i) done.blocks.push_back({.offset = result.buffers[i], .crc32c = result.crcs[i]});
    if (kept > 0) {
      done.lease = next_id_++;
      result.buffers.resize(kept);
      session->second.leases.insert(done.lease);
      leases_[done.lease] = {result.session, std::move(result.buffers), wiring_.control.Now() + options_.lease_time};
    }
    session->second.stream->Send(std::move(done));
  }
  UpdateGauges();
}

void StoreRuntime::ReleaseLease(uint64_t id) {
  auto node = leases_.extract(id);
  if (node.empty()) return;
  for (const uint64_t buffer : node.mapped().buffers) read_buffers_.Release(buffer);
  if (const auto session = sessions_.find(node.mapped().session); session != sessions_.end()) {
    session->second.leases.erase(id);
  }
  UpdateGauges();
}

// ---- puts ----------------------------------------------------------------------------------------------------------

void StoreRuntime::Refuse(Session& session, uint64_t tag, Status status) {
  metrics_->Refused(status);
  session.stream->Send(peer::PutDone{.tag = tag, .status = std::move(status)});
}

void StoreRuntime::OnPut(SessionId id, Session& session, const peer::PutBlock& put) {
  if (draining_) {
    return Refuse(session, put.tag, Status(Code::kUnavailable, Reason::kDraining, "the store is shutting down"));
  }
  if (wiring_.tier.ContainsPrefix({&put.key, 1}) == 1) {
    metrics_->duplicates.Add();
    return session.stream->Send(peer::PutDone{.tag = put.tag});
  }
  if (puts_.size() >= options_.max_puts_in_flight || session.pulls.size() >= session.link->max_pending()) {
    return Refuse(session, put.tag, Overloaded("the store has all the puts it can take at once"));
  }
  const auto staging = staging_.Allocate(session.block_bytes);
  if (!staging.has_value()) return Refuse(session, put.tag, Overloaded("the store has no staging buffer left"));
  const PutId put_id = next_id_++;
  PutUnderWay& under_way = puts_[put_id];
  under_way = {.session = id,
               .tag = put.tag,
               .key = put.key,
               .crc32c = put.crc32c,
               .staging = *staging,
               .bytes = session.block_bytes};
  under_way.deadline = wiring_.control.PostAfter(options_.pull_deadline, [this, put_id] { OnPullDeadline(put_id); });
  session.pulls.insert(put_id);
  UpdateGauges();
  session.link->Get(session.region, put.offset, Staging(under_way),
                    [this, put_id, alive = std::weak_ptr<int>(alive_), &control = wiring_.control](Status status) {
                      control.Post([this, put_id, alive, status = std::move(status)] {
                        if (alive.lock() != nullptr) OnPulled(put_id, status);
                      });
                    });
}

void StoreRuntime::OnPullDeadline(PutId id) {
  const auto put = puts_.find(id);
  if (put == puts_.end()) return;
  put->second.deadline = TimerId::kNone;
  EndSession(put->second.session,
             Status(Code::kDeadlineExceeded, Reason::kDeadline, "a block that was put did not arrive in time"));
}

void StoreRuntime::OnPulled(PutId id, const Status& status) {
  const auto found = puts_.find(id);
  if (found == puts_.end() || found->second.orphaned) return;
  PutUnderWay& put = found->second;
  wiring_.control.Cancel(std::exchange(put.deadline, TimerId::kNone));
  Session& session = sessions_.at(put.session);  // else it would be orphaned
  session.pulls.erase(id);
  if (status.ok()) {
    writable_.push_back(id);
    return PumpWriter();
  }
  const SessionId session_id = put.session;
  FinishPut(id, status);
  if (status.reason() == Reason::kPeerLost) EndSession(session_id, status);
}

void StoreRuntime::PumpWriter() {
  if (writing_ || writable_.empty()) return;
  writing_ = true;
  std::vector<PutId> ids;
  std::vector<store::TierPut> batch;
  while (!writable_.empty() && ids.size() < options_.max_batch_puts) {
    const PutUnderWay& put = puts_.at(writable_.front());
    ids.push_back(writable_.front());
    batch.push_back({.key = put.key, .bytes = Staging(put), .crc32c = put.crc32c, .retention = options_.retention});
    writable_.pop_front();
  }
  wiring_.writer.Post([this, alive = std::weak_ptr<int>(alive_), &tier = wiring_.tier, &control = wiring_.control,
                       ids = std::move(ids), batch = std::move(batch)]() mutable {
    std::vector<Status> statuses(batch.size());
    std::vector<store::TierPut> intact;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (Crc32c(batch[i].bytes.data(), batch[i].bytes.size()) == batch[i].crc32c) {
        intact.push_back(batch[i]);
      } else {
        statuses[i] = Status(Code::kDataLoss, Reason::kKvCorrupt, "the block arrived with another checksum");
      }
    }
    std::vector<Status> written = tier.Put(intact);
    size_t next = 0;
    for (auto& status : statuses) {
      if (status.ok()) status = std::move(written[next++]);
    }
    control.Post([this, alive = std::move(alive), ids = std::move(ids), statuses = std::move(statuses)] {
      if (alive.lock() != nullptr) OnWritten(ids, statuses);
    });
  });
}

void StoreRuntime::OnWritten(const std::vector<PutId>& ids, const std::vector<Status>& statuses) {
  writing_ = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    ++progress_;
    if (statuses[i].ok()) metrics_->put.Add();
    if (statuses[i].reason() == Reason::kKvCorrupt) metrics_->corrupt_transfer.Add();
    if (statuses[i].reason() == Reason::kNone && !statuses[i].ok()) {
      Log(LogLevel::kError, "store_write_failed", {{"error", statuses[i].ToString()}});
    }
    FinishPut(ids[i], statuses[i]);
  }
  PumpWriter();
}

void StoreRuntime::FinishPut(PutId id, const Status& status) {
  const auto node = puts_.extract(id);
  if (node.empty()) return;
  const PutUnderWay& put = node.mapped();
  staging_.Release(put.staging);
  if (!status.ok()) metrics_->Refused(status);
  if (const auto session = sessions_.find(put.session); session != sessions_.end()) {
    session->second.stream->Send(peer::PutDone{.tag = put.tag, .status = status});
  }
  UpdateGauges();
  CheckDrained();
}

// ---- time ----------------------------------------------------------------------------------------------------------

void StoreRuntime::Tick() {
  tick_ = wiring_.control.PostAt(NextBeat(wiring_.control.Now(), options_.liveness.heartbeat), [this] { Tick(); });
  const TimePoint now = wiring_.control.Now();
  const peer::Heartbeat heartbeat{.progress = progress_, .busy = reads_under_way_ > 0 || writing_};
  std::vector<std::pair<SessionId, Status>> dead;
  for (auto& [id, session] : sessions_) {
    if (session.stream->pending_sends() < kMaxPendingHeartbeats) session.stream->Send(heartbeat);
    if (Status status = session.liveness.Tick(now); !status.ok()) dead.emplace_back(id, std::move(status));
  }
  for (const auto& [id, status] : dead) {
    Log(LogLevel::kWarning, "store_worker_lost", {{"reason", status.message()}});
    EndSession(id, status);
  }
  std::vector<uint64_t> over;
  for (const auto& [id, lease] : leases_) {
    if (lease.expires <= now) over.push_back(id);
  }
  for (const uint64_t id : over) {
    metrics_->leases_expired.Add();
    ReleaseLease(id);
  }
  AskTierStats();
}

void StoreRuntime::AskTierStats() {
  if (std::exchange(asking_stats_, true)) return;
  wiring_.readers.front()->Post(
      [this, alive = std::weak_ptr<int>(alive_), &tier = wiring_.tier, &control = wiring_.control] {
        control.Post([this, alive, stats = tier.Stats()] {
          if (alive.lock() != nullptr) OnTierStats(stats);
        });
      });
}

void StoreRuntime::OnTierStats(const store::TierStats& stats) {
  asking_stats_ = false;
  metrics_->evicted.Add(static_cast<double>(stats.evicted - tier_stats_.evicted));
  metrics_->expired.Add(static_cast<double>(stats.expired - tier_stats_.expired));
  metrics_->corrupt_disk.Add(static_cast<double>(stats.corrupt - tier_stats_.corrupt));
  tier_stats_ = stats;
  UpdateGauges();
}

void StoreRuntime::UpdateGauges() {
  uint32_t links = links_ending_;
  for (const auto& [id, session] : sessions_) links += session.link != nullptr;
  metrics_->sessions.Set(static_cast<double>(sessions_.size()));
  metrics_->links.Set(links);
  metrics_->leases.Set(static_cast<double>(leases_.size()));
  metrics_->pinned.Set(read_buffers_.buffers());
  metrics_->puts.Set(static_cast<double>(puts_.size()));
  metrics_->blocks.Set(static_cast<double>(tier_stats_.blocks));
  metrics_->disk_bytes.Set(static_cast<double>(tier_stats_.used_bytes));
  metrics_->capacity_bytes.Set(static_cast<double>(tier_stats_.capacity_bytes));
  metrics_->free_bytes.Set(static_cast<double>(tier_stats_.free_bytes));
  metrics_->guarantee_full.Set(tier_stats_.guarantee_full ? 1 : 0);
  metrics_->read_only.Set(tier_stats_.read_only ? 1 : 0);
}

}  // namespace millrace::runtime
