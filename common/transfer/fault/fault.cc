#include "common/transfer/fault/fault.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "common/base/event_loop.h"
#include "common/base/random.h"

namespace millrace::transfer::fault {
namespace {

Status LinkDropped() { return {Code::kUnavailable, Reason::kPeerLost, "fault: the link was dropped"}; }

// Draws the fault of each get. Thread-safe.
class FaultSource {
 public:
  explicit FaultSource(FaultPlan plan) : plan_(std::move(plan)), rng_(plan_.seed) {}

  void Reset(FaultPlan plan) {
    std::lock_guard lock(mutex_);
    plan_ = std::move(plan);
    rng_ = Rng(plan_.seed);
    next_get_ = 0;
  }

  std::optional<FaultRule> Draw() {
    std::lock_guard lock(mutex_);
    const uint64_t get = next_get_++;
    for (const FaultRule& rule : plan_.rules) {
      if (get < rule.first_get || get - rule.first_get >= rule.gets) continue;
      if (rng_.Uniform() >= rule.probability) continue;
      ++faults_;
      return rule;
    }
    return std::nullopt;
  }

  uint64_t faults() const {
    std::lock_guard lock(mutex_);
    return faults_;
  }

 private:
  mutable std::mutex mutex_;
  FaultPlan plan_;         // guarded by mutex_
  Rng rng_;                // guarded by mutex_
  uint64_t next_get_ = 0;  // guarded by mutex_
  uint64_t faults_ = 0;    // guarded by mutex_
};

// Every completion runs on the decorator's loop, whatever thread the inner transport completes on.
class FaultyLink final : public Link {
 public:
  FaultyLink(std::unique_ptr<Link> inner, FaultSource& faults, EventLoop& loop)
      : faults_(faults), loop_(loop), max_pending_(inner->max_pending()), inner_(std::move(inner)) {}

  ~FaultyLink() override {
    inner_.reset();  // from here on only gets held by a fault are pending
    std::promise<void> ended;
    loop_.Post([&] {
      while (!held_.empty()) Release(held_.begin()->first, Cancelled("fault: the link was destroyed"));
      ended.set_value();
    });
    ended.get_future().wait();
  }

  StatusOr<RemoteRegion> Import(const std::string& descriptor) override { return inner_->Import(descriptor); }

  void Get(RemoteRegion region, uint64_t offset, std::span<std::byte> into, Completion done) override {
    if (pending_.fetch_add(1) >= max_pending_) {
      return Finish(std::move(done), Status(Code::kResourceExhausted, Reason::kOverloaded,
                                            "more than " + std::to_string(max_pending_) + " gets pending on one link"));
    }
    if (dropped_) return Finish(std::move(done), LinkDropped());
    const std::optional<FaultRule> rule = faults_.Draw();
    if (!rule) return inner_->Get(region, offset, into, Forward(std::move(done)));
    Apply(*rule, region, offset, into, std::move(done));
  }

  LinkInfo info() const override { return inner_->info(); }
  uint32_t max_pending() const override { return max_pending_; }

 private:
  struct Held {
    Completion done;
    TimerId timer = TimerId::kNone;
  };

  void Apply(const FaultRule& rule, RemoteRegion region, uint64_t offset, std::span<std::byte> into, Completion done) {
    switch (rule.kind) {
      case FaultKind::kDelay:
        return inner_->Get(region, offset, into, [this, delay = rule.delay, done = std::move(done)](Status status) {
          loop_.Post([this, delay, done, status] { Hold(done, delay, status); });
        });
      case FaultKind::kFail: {
        const Status failed = Unavailable("fault: failed after " + std::to_string(rule.bytes) + " bytes");
        if (rule.bytes == 0) return Finish(std::move(done), failed);
        const auto prefix = into.first(std::min<uint64_t>(rule.bytes, into.size()));
        return inner_->Get(region, offset, prefix, [this, failed, done = std::move(done)](Status status) {
          Finish(done, status.ok() ? failed : status);
        });
      }
      case FaultKind::kCorrupt:
        return inner_->Get(region, offset, into, [this, at = rule.bytes, into, done = std::move(done)](Status status) {
          if (status.ok() && !into.empty()) into[at % into.size()] ^= std::byte{0x5a};
          Finish(done, status);
        });
      case FaultKind::kStall:
        return loop_.Post([this, done = std::move(done)] { Hold(done, std::nullopt, OkStatus()); });
      case FaultKind::kDropLink:
        dropped_ = true;
        return Finish(std::move(done), LinkDropped());
    }
  }

  Completion Forward(Completion done) {
    return [this, done = std::move(done)](Status status) { Finish(done, std::move(status)); };
  }

  void Finish(Completion done, Status status) {
    loop_.Post([this, done = std::move(done), status = std::move(status)] {
      --pending_;
      done(status);
    });
  }

  // On the loop. Without a delay the get is held until the link is destroyed.
  void Hold(Completion done, std::optional<Duration> delay, const Status& status) {
    const uint64_t id = next_held_++;
    Held& held = held_[id];
    held.done = std::move(done);
    if (delay) held.timer = loop_.PostAfter(*delay, [this, id, status] { Release(id, status); });
  }

  // On the loop.
  void Release(uint64_t id, const Status& status) {
    const auto it = held_.find(id);
    if (it == held_.end()) return;
    const Held held = std::move(it->second);
    held_.erase(it);
    loop_.Cancel(held.timer);
    --pending_;
    held.done(status);
  }

  FaultSource& faults_;
  EventLoop& loop_;
  const uint32_t max_pending_;
  std::atomic<uint32_t> pending_ = 0;
  std::atomic<bool> dropped_ = false;
  std::map<uint64_t, Held> held_;  // only on the loop
  uint64_t next_held_ = 0;         // only on the loop
  std::unique_ptr<Link> inner_;
};

class FaultyTransportOver final : public FaultyTransport {
 public:
  FaultyTransportOver(std::unique_ptr<Transport> inner, FaultPlan plan)
      : inner_(std::move(inner)), faults_(std::move(plan)), loop_("transfer-fault") {}

  const std::string& address() const override { return inner_->address(); }
  StatusOr<std::unique_ptr<Memory>> Allocate(size_t size) override { return inner_->Allocate(size); }
  StatusOr<std::unique_ptr<Region>> Register(std::span<std::byte> memory) override { return inner_->Register(memory); }
  StatusOr<std::unique_ptr<Link>> Connect(const std::string& peer_address) override {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, inner_->Connect(peer_address));
    return std::unique_ptr<Link>(std::make_unique<FaultyLink>(std::move(link), faults_, loop_));
  }
  void SetPlan(FaultPlan plan) override { faults_.Reset(std::move(plan)); }
  uint64_t faults() const override { return faults_.faults(); }

 private:
  const std::unique_ptr<Transport> inner_;
  FaultSource faults_;
  EventLoop loop_;
};

}  // namespace

std::unique_ptr<FaultyTransport> MakeFaultyTransport(std::unique_ptr<Transport> inner, FaultPlan plan) {
  return std::make_unique<FaultyTransportOver>(std::move(inner), std::move(plan));
}

}  // namespace millrace::transfer::fault
