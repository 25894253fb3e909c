#include "common/runtime/store_connection.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/log.h"

namespace millrace::runtime {
namespace {

// The store reads the next window from its disk while this one is pulled.
constexpr size_t kWindowsAtOnce = 2;
constexpr size_t kMaxPendingHeartbeats = 16;

Counter& LookupBlocks(MetricRegistry& registry, const char* result) {
  return registry.AddCounter("millrace_store_client_lookup_blocks_total", "Blocks looked up", {{"result", result}});
}
Counter& LoadBlocks(MetricRegistry& registry, const char* result) {
  return registry.AddCounter("millrace_store_client_load_blocks_total", "Blocks asked for by loads",
                             {{"result", result}});
}

}  // namespace

StoreClientMetrics::StoreClientMetrics(MetricRegistry& registry)
    : connected(registry.AddGauge("millrace_store_client_connected", "Stores that can be called now")),
      calls(registry.AddGauge("millrace_store_client_calls", "Lookups, loads and puts under way")),
      lost(registry.AddCounter("millrace_store_client_lost_total", "Connections to stores that ended")),
      lookup_hits(LookupBlocks(registry, "hit")),
      lookup_misses(LookupBlocks(registry, "miss")),
      loaded(LoadBlocks(registry, "loaded")),
      load_missing(LoadBlocks(registry, "missing")),
      load_corrupt(LoadBlocks(registry, "corrupt")),
      put_ok(registry.AddCounter("millrace_store_client_puts_total", "Blocks put", {{"result", "ok"}})),
      load_seconds(registry.AddHistogram("millrace_store_client_load_seconds", "From a load's call to its end",
                                         {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3})) {
  for (const Reason reason : {Reason::kNone, Reason::kOverloaded, Reason::kPeerLost, Reason::kDeadline,
                              Reason::kKvCorrupt, Reason::kNoSpace, Reason::kDraining}) {
    const std::string result = reason == Reason::kNone ? "other" : std::string(ReasonName(reason));
    put_failed[reason] = &registry.AddCounter("millrace_store_client_puts_total", "Blocks put", {{"result", result}});
  }
}

Counter& StoreClientMetrics::Put(Reason reason) {
  const auto counter = put_failed.find(reason);
  return counter == put_failed.end() ? *put_failed.at(Reason::kNone) : *counter->second;
}

StoreConnection::StoreConnection(const StoreClientWiring& wiring, const StoreClientOptions& options,
                                 StoreClientMetrics& metrics, std::string address)
    : wiring_(wiring),
      options_(options),
      metrics_(metrics),
      address_(std::move(address)),
      backoff_(options.reconnect_least) {
  Open();
}

StoreConnection::~StoreConnection() {
  wiring_.control.Cancel(open_timer_);
  for (const auto& [id, call] : lookups_) wiring_.control.Cancel(call.deadline);
  for (const auto& [id, call] : loads_) wiring_.control.Cancel(call.deadline);
  for (const auto& [id, call] : puts_) wiring_.control.Cancel(call.deadline);
}

Task StoreConnection::Guarded(Task task) const {
  return [alive = std::weak_ptr<int>(alive_), task = std::move(task)] {
    if (alive.lock() != nullptr) task();
  };
}

std::span<std::byte> StoreConnection::Block(kv::BlockIndex block) const {
  return options_.kv_memory.subspan(block * options_.block_bytes, options_.block_bytes);
}

Status StoreConnection::Away() const {
  return {Code::kUnavailable, Reason::kPeerLost, "no connection to the store at " + address_};
}

// ---- connection ----------------------------------------------------------------------------------------------------

void StoreConnection::Open() {
  state_ = State::kOpening;
  liveness_.emplace(options_.liveness, wiring_.control.Now());
  const auto alive = std::weak_ptr<int>(alive_);
  stream_ = wiring_.dialer.Open(address_,
                                {.on_message = [this](auto message) { OnMessage(std::move(message)); },
                                 .on_closed = [this](const Status& status) { Down(status.ok() ? Away() : status); }});
  stream_->Send(peer::StoreHello{.layout_digest = options_.layout_digest,
                                 .block_bytes = options_.block_bytes,
                                 .memory = options_.memory,
                                 .incarnation = options_.incarnation});
}

void StoreConnection::Down(const Status& why) {
  if (state_ == State::kDown) return;
  const bool was_ready = std::exchange(state_, State::kDown) == State::kReady;
  if (was_ready) {
    metrics_.lost.Add();
    Log(LogLevel::kWarning, "store_lost", {{"address", address_}, {"reason", why.ToString()}});
  }
  stream_->Close(Cancelled("the store is given up"));
  stream_ = nullptr;
  while (!lookups_.empty()) FinishLookup(lookups_.begin()->first, 0);
  while (!puts_.empty()) FinishPut(puts_.begin()->first, Away());
  put_queue_.clear();
  get_queue_.clear();
  EndLink();
  std::vector<CallId> free;  // loads without bytes in flight and without a check under way
  for (auto& [id, load] : loads_) {
    load.limit = 0;
    std::erase_if(load.windows, [&](const auto& entry) {
      const bool unanswered = !entry.second.answered;
      if (unanswered) load_of_window_.erase(entry.first);
      return unanswered;
    });
    if (load.windows.empty()) free.push_back(id);
  }
  for (const CallId id : free) FinishLoad(id);
  next_open_ = wiring_.control.Now() + backoff_;
  backoff_ = std::min(backoff_ * 2, options_.reconnect_most);
  ScheduleOpen();
}

void StoreConnection::EndLink() {
  if (link_ == nullptr) return;
  link_ending_ = true;
  wiring_.blocking.Post(
      [link = std::move(link_), &control = wiring_.control, gone = Guarded([this] { OnLinkGone(); })]() mutable {
        link.reset();
        control.Post(std::move(gone));
      });
  link_ = nullptr;
}

// Nothing writes any more for any load of the link that is gone.
void StoreConnection::OnLinkGone() {
  link_ending_ = false;
  gets_on_wire_ = 0;
  std::vector<CallId> over;
  for (auto& [id, load] : loads_) {
    std::erase_if(load.windows, [&](const auto& entry) {
      if (entry.second.checking) return false;
      load_of_window_.erase(entry.first);
      return true;
    });
    if (load.windows.empty()) over.push_back(id);
  }
  for (const CallId id : over) FinishLoad(id);
  ScheduleOpen();
}

void StoreConnection::ScheduleOpen() {
  wiring_.control.Cancel(std::exchange(open_timer_, TimerId::kNone));
  if (retired_ || link_ending_ || state_ != State::kDown) return;
  open_timer_ = wiring_.control.PostAt(next_open_, [this] {
    open_timer_ = TimerId::kNone;
    Open();
  });
}

void StoreConnection::Retire() {
  retired_ = true;
  Down(Away());
  ScheduleOpen();
}

void StoreConnection::Tick() {
  if (state_ == State::kDown) return;
  if (stream_->pending_sends() < kMaxPendingHeartbeats) stream_->Send(peer::Heartbeat{});
  if (const Status status = liveness_->Tick(wiring_.control.Now()); !status.ok()) Down(status);
}

void StoreConnection::OnMessage(peer::StoreProtocol::Down message) {
  if (state_ == State::kDown) return;
  if (const auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return liveness_->Heard(*heartbeat);
  liveness_->Heard();
  if (const auto* welcome = std::get_if<peer::StoreWelcome>(&message)) return OnWelcome(*welcome);
  if (const auto* lookup = std::get_if<peer::LookupDone>(&message)) return OnLookupDone(*lookup);
  if (auto* load = std::get_if<peer::LoadDone>(&message)) return OnLoadDone(std::move(*load));
  OnPutDone(std::get<peer::PutDone>(message));
}

void StoreConnection::OnWelcome(const peer::StoreWelcome& welcome) {
  if (state_ != State::kOpening || welcome.max_load_blocks == 0) {
    return Down(InvalidArgument("the store's welcome makes no sense"));
  }
  auto link = wiring_.transport.Connect(welcome.memory.transport_address);
  if (!link.ok()) return Down(link.status());
  auto region = (*link)->Import(welcome.memory.region_descriptor);
  if (!region.ok()) return Down(region.status());
  link_ = *std::move(link);
  region_ = *region;
  max_load_blocks_ = welcome.max_load_blocks;
  state_ = State::kReady;
  backoff_ = options_.reconnect_least;
  Log(LogLevel::kInfo, "store_connected", {{"address", address_}, {"incarnation", welcome.incarnation}});
}

// ---- lookups -------------------------------------------------------------------------------------------------------

void StoreConnection::Lookup(StoreClient::LookupRequest request, std::function<void(uint32_t)> done) {
  const auto asked = static_cast<uint32_t>(request.keys.size());
  const CallId id = next_id_++;
  lookups_[id] = {.done = std::move(done), .asked = asked};
  if (state_ != State::kReady || asked == 0 || lookups_.size() + loads_.size() > options_.max_calls) {
    return FinishLookup(id, 0);
  }
  if (request.deadline != kNever) {
    lookups_[id].deadline = wiring_.control.PostAt(request.deadline, [this, id] { FinishLookup(id, 0); });
  }
  stream_->Send(peer::LookupBlocks{.tag = id, .keys = std::move(request.keys)});
}

void StoreConnection::OnLookupDone(const peer::LookupDone& answer) {
  const auto call = lookups_.find(answer.tag);
  if (call != lookups_.end()) FinishLookup(answer.tag, std::min(answer.present, call->second.asked));
}

void StoreConnection::FinishLookup(CallId id, uint32_t present) {
  auto node = lookups_.extract(id);
  if (node.empty()) return;
  wiring_.control.Cancel(node.mapped().deadline);
  metrics_.lookup_hits.Add(present);
  metrics_.lookup_misses.Add(node.mapped().asked - present);
  wiring_.control.Post(Guarded([done = std::move(node.mapped().done), present] { done(present); }));
}

// ---- loads ---------------------------------------------------------------------------------------------------------

void StoreConnection::LoadInto(StoreClient::LoadRequest request, std::function<void(uint32_t)> done) {
  MR_CHECK(request.blocks.size() == request.keys.size());
  const CallId id = next_id_++;
  LoadCall& load = loads_[id];
  load.done = std::move(done);
  load.started = wiring_.control.Now();
  load.request = std::move(request);
  if (state_ != State::kReady || lookups_.size() + loads_.size() > options_.max_calls) return FinishLoad(id);
  load.limit = static_cast<uint32_t>(load.request.keys.size());
  if (load.request.deadline != kNever) {
    load.deadline = wiring_.control.PostAt(load.request.deadline, [this, id] { OnLoadDeadline(id); });
  }
  PumpLoad(id);
}

// Asks for what is not asked for yet, and ends the load when nothing is left under way.
void StoreConnection::PumpLoad(CallId id) {
  LoadCall& load = loads_.at(id);
  while (state_ == State::kReady && load.next < load.limit && load.windows.size() < kWindowsAtOnce) {
    const CallId tag = next_id_++;
    const uint32_t count = std::min(max_load_blocks_, load.limit - load.next);
    load.windows[tag] = {.first = load.next, .asked = count};
    load_of_window_[tag] = id;
    const auto first = load.request.keys.begin() + load.next;
    load.next += count;
    stream_->Send(peer::LoadBlocks{.tag = tag, .keys = {first, first + count}});
    if (state_ != State::kReady) return;
  }
  if (load.windows.empty()) FinishLoad(id);
}

void StoreConnection::OnLoadDone(peer::LoadDone answer) {
  const auto owner = load_of_window_.find(answer.tag);
  if (owner == load_of_window_.end()) return Release(answer.lease);  // its load ended before
  const CallId id = owner->second;
  LoadCall& load = loads_.at(id);
  Window& window = load.windows.at(answer.tag);
  if (window.answered || answer.blocks.size() > window.asked) {
    return Down(InvalidArgument("the store answered a load twice, or with more than was asked"));
  }
  window.answered = true;
  window.lease = answer.lease;
  window.blocks = std::move(answer.blocks);
  const auto given = static_cast<uint32_t>(window.blocks.size());
  if (given < window.asked) load.limit = std::min(load.limit, window.first + given);
  if (given == 0 || window.first >= load.limit) {
    Release(window.lease);
    load.windows.erase(answer.tag);
    load_of_window_.erase(answer.tag);
    return PumpLoad(id);
  }
  window.gets = given;
  for (uint32_t i = 0; i < given; ++i) {
    get_queue_.push_back({.load = id,
                          .window = answer.tag,
                          .offset = window.blocks[i].offset,
                          .into = Block(load.request.blocks[window.first + i])});
  }
  PumpGets();
}

void StoreConnection::PumpGets() {
  while (state_ == State::kReady && !get_queue_.empty() && gets_on_wire_ < link_->max_pending()) {
    const QueuedGet get = get_queue_.front();
    get_queue_.pop_front();
    ++gets_on_wire_;
    link_->Get(region_, get.offset, get.into,
               [this, load = get.load, window = get.window, alive = std::weak_ptr<int>(alive_),
                &control = wiring_.control](Status status) {
                 control.Post([this, load, window, alive, status = std::move(status)] {
                   if (alive.lock() != nullptr) OnGet(load, window, status);
                 });
               });
  }
}

void StoreConnection::OnGet(CallId load_id, CallId window_id, const Status& status) {
  if (state_ != State::kReady) return;  // the link is ending: OnLinkGone settles it
  --gets_on_wire_;
  const auto load = loads_.find(load_id);
  Window& window = load->second.windows.at(window_id);
  --window.gets;
  if (!status.ok()) window.failed = true;
  if (status.reason() == Reason::kPeerLost) return Down(status);
  if (window.gets == 0) Check(load_id, window_id);
  PumpGets();
}

void StoreConnection::Check(CallId load_id, CallId window_id) {
  LoadCall& load = loads_.at(load_id);
  Window& window = load.windows.at(window_id);
  Release(std::exchange(window.lease, 0));
  window.checking = true;
  if (window.failed) return OnChecked(load_id, window_id, 0, /*corrupt=*/false);
  std::vector<std::span<const std::byte>> bytes;
  for (uint32_t i = 0; i < window.blocks.size(); ++i) bytes.push_back(Block(load.request.blocks[window.first + i]));
  wiring_.blocking.Post([this, load_id, window_id, alive = std::weak_ptr<int>(alive_), &control = wiring_.control,
                         bytes = std::move(bytes), blocks = std::move(window.blocks)]() mutable {
    uint32_t intact = 0;
    while (intact < bytes.size() && Crc32c(bytes[intact].data(), bytes[intact].size()) == blocks[intact].crc32c) {
      ++intact;
    }
    const bool corrupt = intact < bytes.size();
    control.Post([this, load_id, window_id, alive = std::move(alive), intact, corrupt] {
      if (alive.lock() != nullptr) OnChecked(load_id, window_id, intact, corrupt);
    });
  });
}

void StoreConnection::OnChecked(CallId load_id, CallId window_id, uint32_t intact, bool corrupt) {
  LoadCall& load = loads_.at(load_id);  // lives until its checks are done
  const Window& window = load.windows.at(window_id);
  load.verified[window.first] = intact;
  if (corrupt) metrics_.load_corrupt.Add();
  if (corrupt || window.failed) load.limit = std::min(load.limit, window.first + intact);
  load.windows.erase(window_id);
  load_of_window_.erase(window_id);
  PumpLoad(load_id);
}

void StoreConnection::OnLoadDeadline(CallId id) {
  LoadCall& load = loads_.at(id);
  load.deadline = TimerId::kNone;
  load.limit = 0;
  bool bytes_in_flight = false;
  std::erase_if(load.windows, [&](const auto& entry) {
    bytes_in_flight = bytes_in_flight || entry.second.gets > 0;
    if (!entry.second.answered) load_of_window_.erase(entry.first);
    return !entry.second.answered;
  });
  if (bytes_in_flight) {
    return Down(Status(Code::kDeadlineExceeded, Reason::kDeadline, "blocks did not arrive before the load's deadline"));
  }
  if (load.windows.empty()) FinishLoad(id);
}

void StoreConnection::FinishLoad(CallId id) {
  auto node = loads_.extract(id);
  if (node.empty()) return;
  LoadCall& load = node.mapped();
  wiring_.control.Cancel(load.deadline);
  uint32_t loaded = 0;
  for (const auto& [first, count] : load.verified) {
    if (first != loaded) break;
    loaded += count;
  }
  metrics_.loaded.Add(loaded);
  metrics_.load_missing.Add(static_cast<double>(load.request.keys.size() - loaded));
  metrics_.load_seconds.Observe(ToSeconds(wiring_.control.Now() - load.started));
  wiring_.control.Post(Guarded([done = std::move(load.done), loaded] { done(loaded); }));
}

void StoreConnection::Release(uint64_t lease) {
  if (lease != 0 && state_ == State::kReady) stream_->Send(peer::ReleaseLease{.lease = lease});
}

// ---- puts ----------------------------------------------------------------------------------------------------------

void StoreConnection::Put(StoreClient::PutRequest request, std::function<void(Status)> done) {
  const CallId id = next_id_++;
  const bool full = puts_.size() >= options_.max_queued_puts;
  PutCall& put = puts_[id];
  put.request = request;
  put.done = std::move(done);
  if (state_ != State::kReady) return FinishPut(id, Away());
  if (full) {
    return FinishPut(id, Status(Code::kResourceExhausted, Reason::kOverloaded, "too many puts wait for the store"));
  }
  if (request.deadline != kNever) {
    put.deadline = wiring_.control.PostAt(request.deadline, [this, id] {
      FinishPut(id, Status(Code::kDeadlineExceeded, Reason::kDeadline, "the store did not take the block in time"));
    });
  }
  put_queue_.push_back(id);
  PumpPuts();
}

void StoreConnection::PumpPuts() {
  while (state_ == State::kReady && !put_queue_.empty() && puts_on_wire_ < options_.max_puts_on_wire) {
    const CallId id = put_queue_.front();
    put_queue_.pop_front();
    const auto put = puts_.find(id);
    if (put == puts_.end()) continue;  // ended while it waited
    put->second.on_wire = true;
    ++puts_on_wire_;
    const auto& request = put->second.request;
    stream_->Send(peer::PutBlock{
        .tag = id, .key = request.key, .offset = request.block * options_.block_bytes, .crc32c = request.crc32c});
  }
}

void StoreConnection::OnPutDone(const peer::PutDone& answer) {
  FinishPut(answer.tag, answer.status);
  PumpPuts();
}

void StoreConnection::FinishPut(CallId id, Status status) {
  auto node = puts_.extract(id);
  if (node.empty()) return;
  PutCall& put = node.mapped();
  wiring_.control.Cancel(put.deadline);
  if (put.on_wire) --puts_on_wire_;
  (status.ok() ? metrics_.put_ok : metrics_.Put(status.reason())).Add();
  wiring_.control.Post(Guarded([done = std::move(put.done), status = std::move(status)] { done(status); }));
}

}  // namespace millrace::runtime
