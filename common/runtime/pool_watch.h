#pragma once
// Watches every balancer replica of one role: which answer, and what their pool can do. On one executor.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/peer/addresses.h"
#include "common/peer/liveness.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"

namespace millrace::runtime {

class PoolWatch {
 public:
  PoolWatch(Executor& executor, peer::Dialer<peer::WatchProtocol>& dialer, const peer::AddressSource& addresses,
            const peer::Liveness& liveness)
      : executor_(executor), dialer_(dialer), addresses_(addresses), liveness_(liveness) {}

  // Opens streams to new replicas, drops those that left or fell silent, and tries lost ones again. Call each heartbeat
  // interval.
  void Tick();
  void Stop();

  // Replicas whose pool state is known, sorted.
  std::vector<std::string> LiveReplicas() const;
  // Every replica, sorted; live or not.
  std::vector<std::string> AllReplicas() const { return addresses_.Addresses(); }
  // Models with a ready instance according to any live replica.
  std::vector<peer::PoolModel> ReadyModels() const;

 private:
  struct Replica {
    std::unique_ptr<peer::ClientStream<peer::WatchProtocol>> stream;
    std::unique_ptr<peer::LivenessMonitor> monitor;
    bool known = false;
    peer::PoolState state;
    TimePoint retry_at{};
    Duration retry_delay{};
  };

  void Open(const std::string& address, Replica& replica);
  void Lost(Replica& replica);

  Executor& executor_;
  peer::Dialer<peer::WatchProtocol>& dialer_;
  const peer::AddressSource& addresses_;
  const peer::Liveness liveness_;
  std::map<std::string, Replica> replicas_;
};

}  // namespace millrace::runtime
