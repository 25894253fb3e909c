#include "common/runtime/store_client.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/runtime/store_connection.h"
#include "common/store/placement.h"

namespace millrace::runtime {

StoreClient::StoreClient(StoreClientWiring wiring, StoreClientOptions options)
    : wiring_(wiring),
      options_(std::move(options)),
      metrics_(std::make_unique<StoreClientMetrics>(wiring_.metrics)),
      alive_(std::make_shared<int>(0)) {
  MR_CHECK(options_.block_bytes > 0);
  wiring_.control.Post(Guarded([this] { Tick(); }));
}

StoreClient::~StoreClient() { wiring_.control.Cancel(tick_); }

Task StoreClient::Guarded(Task task) const {
  return [alive = std::weak_ptr<int>(alive_), task = std::move(task)] {
    if (alive.lock() != nullptr) task();
  };
}

void StoreClient::Tick() {
  tick_ = wiring_.control.PostAt(NextBeat(wiring_.control.Now(), options_.liveness.heartbeat), [this] { Tick(); });
  addresses_ = wiring_.addresses.Addresses();
  for (auto& [address, connection] : connections_) {
    if (std::binary_search(addresses_.begin(), addresses_.end(), address)) {
      connection->Tick();
    } else {
      connection->Retire();
    }
  }
  // A store that came back under its address while its old connection ends gets a new one when that is over.
  std::erase_if(connections_, [](const auto& entry) { return entry.second->ended(); });
  for (const auto& address : addresses_) {
    auto& connection = connections_[address];
    if (connection == nullptr) {
      connection = std::make_unique<StoreConnection>(wiring_, options_, *metrics_, address);
    }
  }
  UpdateGauges();
}

void StoreClient::UpdateGauges() {
  size_t calls = 0;
  for (const auto& [address, connection] : connections_) calls += connection->calls();
  metrics_->connected.Set(connected());
  metrics_->calls.Set(static_cast<double>(calls));
}

uint32_t StoreClient::connected() const {
  return static_cast<uint32_t>(
      std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) { return entry.second->ready(); }));
}

StoreConnection* StoreClient::Home(const kv::BlockKey& chain) {
  if (addresses_.empty()) return nullptr;
  const auto home = connections_.find(addresses_[store::PickStore(chain, addresses_)]);
  return home == connections_.end() ? nullptr : home->second.get();
}

void StoreClient::Lookup(LookupRequest request, std::function<void(uint32_t present)> done) {
  StoreConnection* home = Home(request.chain);
  if (home != nullptr) return home->Lookup(std::move(request), std::move(done));
  wiring_.control.Post(Guarded([done = std::move(done)] { done(0); }));
}

void StoreClient::LoadInto(LoadRequest request, std::function<void(uint32_t loaded)> done) {
  StoreConnection* home = Home(request.chain);
  if (home != nullptr) return home->LoadInto(std::move(request), std::move(done));
  wiring_.control.Post(Guarded([done = std::move(done)] { done(0); }));
}

void StoreClient::Put(PutRequest request, std::function<void(Status)> done) {
  StoreConnection* home = Home(request.chain);
  if (home != nullptr) return home->Put(request, std::move(done));
  wiring_.control.Post(
      Guarded([done = std::move(done)] { done(Status(Code::kUnavailable, Reason::kPeerLost, "there is no store")); }));
}

}  // namespace millrace::runtime
