#include "common/transfer/loopback/loopback.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "common/base/event_loop.h"
#include "common/base/random.h"
#include "common/transfer/anonymous_memory.h"
#include "common/transfer/blob.h"

namespace millrace::transfer::loopback {
namespace {

constexpr size_t kFragmentBytes = 1 << 20;  // copied without looking whether the link ends or the region goes

Status PeerLost() { return {Code::kUnavailable, Reason::kPeerLost, "loopback: the peer is gone"}; }

struct SharedRegion {
  std::mutex mutex;                   // held while bytes are copied
  std::span<const std::byte> memory;  // guarded by mutex; empty once the region was destroyed
  size_t size = 0;

  // False when the region was destroyed.
  bool Copy(uint64_t offset, std::span<std::byte> into) {
    std::lock_guard lock(mutex);
    if (memory.size() != size) return false;
    if (!into.empty()) std::memcpy(into.data(), memory.data() + offset, into.size());
    return true;
  }
};

class LoopbackLink;

// What peers can reach of one transport.
struct Endpoint {
  std::mutex mutex;
  PeerState state = PeerState::kRunning;                      // guarded by mutex
  std::map<uint64_t, std::shared_ptr<SharedRegion>> regions;  // guarded by mutex
  std::set<LoopbackLink*> links;                              // to this endpoint; guarded by mutex
};

// All endpoints of this process.
class Hub {
 public:
  static Hub& Process() {
    static Hub* const hub = new Hub;
    return *hub;
  }

  void Add(const TransportId& id, std::shared_ptr<Endpoint> endpoint) {
    std::lock_guard lock(mutex_);
    endpoints_[id] = std::move(endpoint);
  }
  void Remove(const TransportId& id) {
    std::lock_guard lock(mutex_);
    endpoints_.erase(id);
  }
  std::shared_ptr<Endpoint> Find(const TransportId& id) const {
    std::lock_guard lock(mutex_);
    const auto it = endpoints_.find(id);
    return it == endpoints_.end() ? nullptr : it->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<TransportId, std::shared_ptr<Endpoint>> endpoints_;  // guarded by mutex_
};

StatusOr<TransportId> ParseAddress(const std::string& address) {
  MR_ASSIGN_OR_RETURN(BlobReader reader, BlobReader::Open(BlobKind::kAddress, address));
  const std::string_view transport = reader.Bytes();
  const TransportId id = reader.Id();
  if (transport != "loopback" || !reader.complete()) return InvalidArgument("not the address of a loopback transport");
  return id;
}

struct PendingGet {
  std::shared_ptr<SharedRegion> region;
  uint64_t offset = 0;
  std::span<std::byte> into;
  Completion done;
};

class LoopbackLink final : public Link {
 public:
  LoopbackLink(EventLoop& loop, TransportId peer, std::shared_ptr<Endpoint> endpoint, uint32_t max_pending)
      : loop_(loop), peer_(peer), endpoint_(std::move(endpoint)), max_pending_(max_pending) {
    if (endpoint_ == nullptr) return;
    std::lock_guard lock(endpoint_->mutex);
    endpoint_->links.insert(this);
  }

  ~LoopbackLink() override {
    closing_ = true;
    if (endpoint_ != nullptr) {
      std::lock_guard lock(endpoint_->mutex);
      endpoint_->links.erase(this);
    }
    std::promise<void> ended;
    loop_.Post([&] {
      FinishHeld(Cancelled("loopback: the link was destroyed"));
      ended.set_value();
    });
    ended.get_future().wait();
  }

  StatusOr<RemoteRegion> Import(const std::string& descriptor) override {
    MR_ASSIGN_OR_RETURN(BlobReader reader, BlobReader::Open(BlobKind::kRegion, descriptor));
    const TransportId owner = reader.Id();
    const uint64_t id = reader.U64();
    const uint64_t size = reader.U64();
    if (!reader.complete() || owner != peer_) return InvalidArgument("the region is not one of this link's peer");
    auto region = std::make_shared<SharedRegion>();  // stands for one that is gone
    region->size = size;
    if (endpoint_ != nullptr) {
      std::lock_guard lock(endpoint_->mutex);
      if (const auto it = endpoint_->regions.find(id); it != endpoint_->regions.end()) region = it->second;
    }
    std::lock_guard lock(mutex_);
    regions_.push_back(std::move(region));
    return static_cast<RemoteRegion>(regions_.size() - 1);
  }

  void Get(RemoteRegion region, uint64_t offset, std::span<std::byte> into, Completion done) override {
    PendingGet get{Find(region), offset, into, std::move(done)};
    Status refused;
    if (get.region == nullptr) {
      refused = InvalidArgument("the region was not imported over this link");
    } else if (offset > get.region->size || into.size() > get.region->size - offset) {
      refused = Status(Code::kOutOfRange, "get of [" + std::to_string(offset) + ", +" + std::to_string(into.size()) +
                                              ") from a region of " + std::to_string(get.region->size) + " bytes");
    }
    if (pending_.fetch_add(1) >= max_pending_ && refused.ok()) {
      refused = Status(Code::kResourceExhausted, Reason::kOverloaded,
                       "more than " + std::to_string(max_pending_) + " gets pending on one link");
    }
    loop_.Post([this, get = std::move(get), refused = std::move(refused)]() mutable {
      refused.ok() ? Begin(std::move(get)) : Finish(get, refused);
    });
  }

  LinkInfo info() const override {
    return {.transport = "loopback", .lanes = {"memory"}, .same_host = true, .error_mode = "peer"};
  }
  uint32_t max_pending() const override { return max_pending_; }

  // The peer's state changed. Called with the endpoint's mutex held.
  void OnPeerState() {
    loop_.Post([this] {
      std::deque<PendingGet> held = std::exchange(held_, {});
      for (PendingGet& get : held) Begin(std::move(get));
    });
  }

 private:
  std::shared_ptr<SharedRegion> Find(RemoteRegion region) const {
    std::lock_guard lock(mutex_);
    const auto index = static_cast<size_t>(region);
    return index < regions_.size() ? regions_[index] : nullptr;
  }

  PeerState State() const {
    if (endpoint_ == nullptr) return PeerState::kKilled;
    std::lock_guard lock(endpoint_->mutex);
    return endpoint_->state;
  }

  // Everything below runs on the loop.
  void Begin(PendingGet get) {
    size_t copied = 0;
    do {
      if (closing_) return Finish(get, Cancelled("loopback: the link was destroyed"));
      const PeerState state = State();
      if (state == PeerState::kKilled) return Finish(get, PeerLost());
      if (state == PeerState::kStopped) return held_.push_back(std::move(get));
      const size_t size = std::min(kFragmentBytes, get.into.size() - copied);
      if (!get.region->Copy(get.offset + copied, get.into.subspan(copied, size))) {
        return Finish(get, NotFound("loopback: the peer no longer offers the region"));
      }
      copied += size;
    } while (copied < get.into.size());
    Finish(get, OkStatus());
  }

  void FinishHeld(const Status& status) {
    std::deque<PendingGet> held = std::exchange(held_, {});
    for (PendingGet& get : held) Finish(get, status);
  }

  void Finish(PendingGet& get, const Status& status) {
    --pending_;
    get.done(status);
  }

  EventLoop& loop_;
  const TransportId peer_;
  const std::shared_ptr<Endpoint> endpoint_;  // null when there was none at Connect
  const uint32_t max_pending_;
  std::atomic<uint32_t> pending_ = 0;
  std::atomic<bool> closing_ = false;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<SharedRegion>> regions_;  // guarded by mutex_
  std::deque<PendingGet> held_;                         // of a stopped peer; only on the loop
};

class LoopbackRegion final : public Region {
 public:
  LoopbackRegion(std::shared_ptr<Endpoint> endpoint, const TransportId& owner, std::span<std::byte> memory)
      : endpoint_(std::move(endpoint)), shared_(std::make_shared<SharedRegion>()), id_(RandomSeed()) {
    shared_->memory = memory;
    shared_->size = memory.size();
    descriptor_ = BlobWriter().Id(owner).U64(id_).U64(memory.size()).Finish(BlobKind::kRegion);
    std::lock_guard lock(endpoint_->mutex);
    endpoint_->regions[id_] = shared_;
  }
  ~LoopbackRegion() override {
    {
      std::lock_guard lock(endpoint_->mutex);
      endpoint_->regions.erase(id_);
    }
    std::lock_guard lock(shared_->mutex);
    shared_->memory = {};
  }
  const std::string& descriptor() const override { return descriptor_; }

 private:
  const std::shared_ptr<Endpoint> endpoint_;
  const std::shared_ptr<SharedRegion> shared_;
  const uint64_t id_;
  std::string descriptor_;
};

class LoopbackTransport final : public Transport {
 public:
  explicit LoopbackTransport(const TransportOptions& options)
      : id_(NewTransportId()),
        address_(BlobWriter().Bytes("loopback").Id(id_).Finish(BlobKind::kAddress)),
        max_pending_(options.max_pending),
        endpoint_(std::make_shared<Endpoint>()),
        loop_("loopback") {
    Hub::Process().Add(id_, endpoint_);
  }
  ~LoopbackTransport() override {
    Hub::Process().Remove(id_);
    MR_CHECK(SetState(*endpoint_, PeerState::kKilled).ok());
  }

  static Status SetState(Endpoint& endpoint, PeerState state) {
    std::lock_guard lock(endpoint.mutex);
    if (endpoint.state == PeerState::kKilled && state != PeerState::kKilled) {
      return FailedPrecondition("loopback: a killed peer does not come back");
    }
    endpoint.state = state;
    for (LoopbackLink* link : endpoint.links) link->OnPeerState();
    return OkStatus();
  }

  const std::string& address() const override { return address_; }

  StatusOr<std::unique_ptr<Memory>> Allocate(size_t size) override { return MakeAnonymousMemory(size); }

  StatusOr<std::unique_ptr<Region>> Register(std::span<std::byte> memory) override {
    if (memory.empty()) return InvalidArgument("loopback: Register of 0 bytes");
    return std::unique_ptr<Region>(std::make_unique<LoopbackRegion>(endpoint_, id_, memory));
  }

  StatusOr<std::unique_ptr<Link>> Connect(const std::string& peer_address) override {
    MR_ASSIGN_OR_RETURN(const TransportId peer, ParseAddress(peer_address));
    return std::unique_ptr<Link>(std::make_unique<LoopbackLink>(loop_, peer, Hub::Process().Find(peer), max_pending_));
  }

 private:
  const TransportId id_;
  const std::string address_;
  const uint32_t max_pending_;
  const std::shared_ptr<Endpoint> endpoint_;
  EventLoop loop_;
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> MakeLoopbackTransport(const TransportOptions& options) {
  if (!options.lanes.empty() && options.lanes != "memory") {
    return InvalidArgument("loopback: unknown lanes '" + options.lanes + "'; it has 'memory' only").WithParam("lanes");
  }
  if (!options.devices.empty()) return InvalidArgument("loopback: it has no devices to choose").WithParam("devices");
  if (options.max_pending == 0) return InvalidArgument("loopback: max_pending is 0").WithParam("max_pending");
  return std::unique_ptr<Transport>(std::make_unique<LoopbackTransport>(options));
}

Status SetPeerState(const std::string& address, PeerState state) {
  MR_ASSIGN_OR_RETURN(const TransportId id, ParseAddress(address));
  const std::shared_ptr<Endpoint> endpoint = Hub::Process().Find(id);
  if (endpoint == nullptr) return NotFound("loopback: no transport of this process has the address");
  return LoopbackTransport::SetState(*endpoint, state);
}

}  // namespace millrace::transfer::loopback
