#include "common/runtime/pool_watch.h"

#include <algorithm>
#include <utility>

namespace millrace::runtime {

namespace {

constexpr Duration kFirstRetry = Milliseconds(200);
constexpr Duration kMaxRetry = Seconds(2);

}  // namespace

void PoolWatch::Tick() {
  std::vector<std::string> addresses = addresses_.Addresses();
  std::erase_if(replicas_, [&](const auto& entry) {
    return !std::binary_search(addresses.begin(), addresses.end(), entry.first);
  });
  TimePoint now = executor_.Now();
  for (const std::string& address : addresses) {
    Replica& replica = replicas_[address];
    if (replica.stream && !replica.monitor->Tick(now).ok()) Lost(replica);
    if (!replica.stream && now >= replica.retry_at) Open(address, replica);
  }
}

void PoolWatch::Stop() { replicas_.clear(); }

void PoolWatch::Open(const std::string& address, Replica& replica) {
  replica.monitor = std::make_unique<peer::LivenessMonitor>(liveness_, executor_.Now());
  peer::StreamHandler<peer::WatchProtocol::Down> handler;
  handler.on_message = [&replica](peer::WatchProtocol::Down message) {
    if (auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return replica.monitor->Heard(*heartbeat);
    replica.monitor->Heard();
    replica.known = true;
    replica.retry_delay = Duration(0);
    replica.state = std::get<peer::PoolState>(std::move(message));
  };
  handler.on_closed = [this, &replica](const Status&) { Lost(replica); };
  replica.stream = dialer_.Open(address, std::move(handler));
  replica.stream->Send(peer::WatchRequest{});
}

void PoolWatch::Lost(Replica& replica) {
  replica.stream.reset();
  replica.known = false;
  replica.state = {};
  replica.retry_delay = std::clamp<Duration>(replica.retry_delay * 2, kFirstRetry, kMaxRetry);
  replica.retry_at = executor_.Now() + replica.retry_delay;
}

std::vector<std::string> PoolWatch::LiveReplicas() const {
  std::vector<std::string> live;
  for (const auto& [address, replica] : replicas_) {
    if (replica.known) live.push_back(address);
  }
  return live;
}

std::vector<peer::PoolModel> PoolWatch::ReadyModels() const {
  std::vector<peer::PoolModel> models;
  for (const auto& [address, replica] : replicas_) {
    for (const peer::PoolModel& model : replica.state.models) {
      if (model.ready_instances == 0) continue;
      auto same = [&](const peer::PoolModel& other) { return other.model == model.model; };
      auto it = std::find_if(models.begin(), models.end(), same);
      if (it == models.end()) {
        models.push_back(model);
      } else {
        it->ready_instances = std::max(it->ready_instances, model.ready_instances);
      }
    }
  }
  return models;
}

}  // namespace millrace::runtime
