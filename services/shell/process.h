#pragma once
// What every Millrace process has in common: settings, logs, metrics, the gRPC server with its health service, the
// admin HTTP server (/healthz, /readyz, /metrics, /statusz), the ready file, and the life from start to drained stop. A
// service's main.cc describes its settings, builds its runtime and hands it to Main.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/status.h"
#include "common/cluster/instance.h"
#include "common/config/schema.h"
#include "common/rpc/server.h"

namespace millrace::shell {

struct Program {
  std::string name;     // "millrace-prefill-worker"
  std::string summary;  // for --help
  cluster::Role role = cluster::Role::kGateway;
  std::string grpc_port_flag = "port";  // the gateway's --port is its HTTP port
};

// The flags that every process has.
struct CommonConfig {
  std::string host = "127.0.0.1";
  std::string advertise_host;  // how peers reach this process; empty = host
  uint16_t grpc_port = 0;
  uint16_t admin_port = 0;
  std::string name;  // empty = role-pid
  std::string ready_file;
  std::string log_level = "info";
  std::string log_format = "text";
  Duration drain_timeout = Seconds(30);

  void Describe(config::Schema& schema, const Program& program);
  Status Validate() const;
  // What peers dial: the advertised host with `port`.
  std::string AdvertisedAddress(uint16_t port) const;
  // Whether --host is a loopback address: a process meant for this machine listens on no other interface.
  bool OnLoopback() const;
};

// Given to a service while it is built; outlives it.
class Process {
 public:
  virtual ~Process() = default;
  virtual Executor& control() = 0;  // the service's control loop, running
  virtual MetricRegistry& metrics() = 0;
  virtual cluster::Incarnation incarnation() const = 0;
  virtual const CommonConfig& common() const = 0;  // name filled in
  virtual rpc::Server& rpc_server() = 0;           // AddService only while the service is built
  // What the process is busy with before it is ready ("loading model 40 %"), for /readyz and /statusz. Thread-safe.
  virtual void SetPhase(const std::string& phase) = 0;
};

// A built service. Built on the main thread; everything else, its end included, happens on the control executor.
class Service {
 public:
  virtual ~Service() = default;
  // gRPC listens and peers reach it at `address`.
  virtual Status Start(const std::string& address) = 0;
  // Can do its job now.
  virtual bool Ready() = 0;
  // Role-specific load for /statusz and `millrace status`.
  virtual std::vector<LogField> StatusFields() = 0;
  // More ports to write into the ready file, e.g. {"http_port", "8080"}. After Start.
  virtual std::vector<LogField> Ports() { return {}; }
  // Takes no new work and calls `done` once when the old is finished. The process ends at the drain timeout all the
  // same.
  virtual void Drain(std::function<void()> done) = 0;
  // The drain timeout has passed, or a second signal came: what is still under way ends now, with an error for those
  // who can be told one.
  virtual void CutShort() {}
};

using Describe = std::function<void(config::Schema&)>;
using Builder = std::function<StatusOr<std::unique_ptr<Service>>(Process&)>;

// Runs the process until SIGTERM or SIGINT (a second one cuts the drain short). Returns the exit status: 0 after a
// drained stop, 1 when it could not start or drain, 2 for bad settings.
int Main(const Program& program, const Describe& describe, const Builder& build, int argc, char** argv);

}  // namespace millrace::shell
