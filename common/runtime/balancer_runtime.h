#pragma once
// BalancerRuntime: one pool of one role. Workers report to it, anyone may ask it for a pick, gateways watch what the
// pool can do. Which policy and which role is configuration; all balancers are this runtime.
//
// Everything runs on one executor: construct before it starts or on it, destroy on it or after its end. State is soft:
// a new replica knows the pool as soon as the workers' streams reach it, and answers picks of its first `grace` only
// then.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/cluster/pool.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"
#include "common/policy/policy.h"

namespace millrace::runtime {

struct BalancerOptions {
  cluster::Role role = cluster::Role::kPrefill;  // of the pool's instances
  std::string policy = "least_loaded";
  policy::PolicyOptions policy_options;
  peer::Liveness liveness;
  uint32_t max_waiting_picks = 1024;
  uint32_t max_streams = 4096;          // reports and watches each
  Duration max_wait = Seconds(30);      // longest a pick waits for room
  Duration grace = Milliseconds(2000);  // how long a pick waits for a pool that lost its last instance or just started
  uint64_t seed = 1;                    // of the policy's ties
};

class BalancerRuntime final : public peer::Service<peer::ReportProtocol>,
                              public peer::Service<peer::PickProtocol>,
                              public peer::Service<peer::WatchProtocol> {
 public:
  // kInvalidArgument when there is no such policy.
  static StatusOr<std::unique_ptr<BalancerRuntime>> Make(const BalancerOptions& options, Executor& executor,
                                                         MetricRegistry& metrics);
  ~BalancerRuntime() override;

  // Begins heartbeats and liveness. Once, on the executor or before it starts.
  void Start();
  // Refuses new picks with kDraining and ends those that wait with it, so that callers turn to another replica. Reports
  // and watches go on.
  void Drain();

  peer::StreamHandler<peer::ReportProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::ReportProtocol>> stream) override;
  peer::StreamHandler<peer::PickProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::PickProtocol>> stream) override;
  peer::StreamHandler<peer::WatchProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::WatchProtocol>> stream) override;

  std::vector<cluster::Instance> Instances() const { return pool_.Instances(); }
  size_t waiting_picks() const { return picks_.size(); }

 private:
  using StreamId = uint64_t;  // in order of arrival
  struct Reporter {
    std::unique_ptr<peer::ServerStream<peer::ReportProtocol>> stream;
    TimePoint opened;
    cluster::Incarnation incarnation = 0;  // 0 before its hello
  };
  struct Pick {
    std::unique_ptr<peer::ServerStream<peer::PickProtocol>> stream;
    TimePoint opened;
    std::optional<peer::PickRequest> request;
  };
  struct Watcher {
    std::unique_ptr<peer::ServerStream<peer::WatchProtocol>> stream;
    bool asked = false;
  };
  struct Metrics;
  enum class Progress : uint8_t { kDone, kWaiting };

  BalancerRuntime(const BalancerOptions& options, std::unique_ptr<policy::Policy> policy, Executor& executor,
                  MetricRegistry& metrics);

  void OnHello(StreamId id, const peer::WorkerHello& hello);
  void OnReport(StreamId id, const cluster::Load& load);
  void CloseReporter(StreamId id, Status status);
  void CloseReplaced();
  void OnPickRequest(StreamId id, peer::PickRequest request);
  void Shed(StreamId id, Status status);
  Progress TryPick(StreamId id, Pick& pick);
  // What to tell a pick that no live and ready instance can serve; OK = wait.
  Status NobodyReady(const cluster::ModelSelector& selector) const;
  Status WaitedTooLong(const Pick& pick) const;
  void Route(StreamId id, const Pick& pick, cluster::Incarnation target);

  void PoolChanged();  // tells watchers, retries waiting picks
  void RetryPicks();
  void Tick();
  void ExpireInstances();
  void ExpireStreams();
  void SendHeartbeats();

  const BalancerOptions options_;
  Executor& executor_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<policy::Policy> policy_;
  Rng rng_;
  cluster::Pool pool_;
  peer::PoolState state_;  // as last sent to watchers
  StreamId next_id_ = 1;
  std::map<StreamId, Reporter> reporters_;
  std::map<cluster::Incarnation, StreamId> reporter_of_;  // the newest stream of each live incarnation
  std::map<StreamId, Pick> picks_;
  std::map<StreamId, Watcher> watchers_;
  TimerId timer_ = TimerId::kNone;
  TimePoint started_;
  TimePoint last_tick_;
  uint64_t ticks_ = 0;
  bool draining_ = false;
};

}  // namespace millrace::runtime
