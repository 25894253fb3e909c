#pragma once
// Tells every replica of the worker's balancer how the worker is: one Report stream each, opened again with backoff
// when it ends. Reports go out on change, at most one each min_interval, and at least one each heartbeat interval; a
// balancer that does not read is not sent more than a few. Everything on `control`; destroy after it stopped.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/cluster/instance.h"
#include "common/peer/addresses.h"
#include "common/peer/liveness.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"

namespace millrace::runtime {

// All outlive the reporter.
struct WorkerReporterWiring {
  Executor& control;
  peer::Dialer<peer::ReportProtocol>& dialer;
  const peer::AddressSource& balancers;  // asked again every heartbeat
  MetricRegistry& metrics;
};

struct WorkerReporterOptions {
  cluster::InstanceInfo info;
  peer::Liveness liveness;
  Duration min_interval = Milliseconds(50);
  Duration reconnect_least = Milliseconds(100);  // doubled after each failure
  Duration reconnect_most = Seconds(2);
  size_t most_pending = 4;  // reports in one stream's queue
};

class WorkerReporter {
 public:
  // `load` is asked for each report; `sequence` and `ready` are filled in here.
  WorkerReporter(WorkerReporterWiring wiring, WorkerReporterOptions options, std::function<cluster::Load()> load);
  ~WorkerReporter();

  // Once, on `control` or before it runs.
  void Start();
  // The load changed: a report follows within min_interval.
  void Changed();
  uint32_t connected() const;  // balancers that answered on their open stream

 private:
  struct Balancer {
    std::unique_ptr<peer::ClientStream<peer::ReportProtocol>> stream;
    std::optional<peer::LivenessMonitor> monitor;
    bool answered = false;
    TimePoint retry_at{};
    Duration backoff{0};
  };

  void Connect(const std::string& address, Balancer& balancer);
  void Lost(const std::string& address);
  void Report();
  void Send(Balancer& balancer, const cluster::Load& load);
  void Tick();

  const WorkerReporterWiring wiring_;
  const WorkerReporterOptions options_;
  const std::function<cluster::Load()> load_;
  std::map<std::string, Balancer> balancers_;  // by address
  uint64_t sequence_ = 0;
  TimePoint last_report_{};
  TimerId report_ = TimerId::kNone;  // a coalesced report is due
  TimerId tick_ = TimerId::kNone;
  Gauge& connected_gauge_;
  Counter& lost_;
};

}  // namespace millrace::runtime
