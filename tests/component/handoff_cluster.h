#pragma once
// Prefill and decode workers, a decode balancer with two addresses ("balancer-0", "balancer-1") and a gateway's dialers
// in one virtual time: every "process" has its own executors, backend, transport and metrics.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/metrics.h"
#include "common/peer/addresses.h"
#include "common/runtime/decode_runtime.h"
#include "common/runtime/prefill_runtime.h"
#include "common/runtime/store_client.h"
#include "common/runtime/store_runtime.h"
#include "common/store/tier.h"
#include "tests/component/handoff_gateway.h"
#include "tests/support/fake_backend.h"
#include "tests/support/local_network.h"
#include "tests/support/local_transport.h"
#include "tests/support/virtual_time.h"

namespace millrace::component {

struct HandoffClusterOptions {
  uint64_t seed = 1;
  uint32_t prefill_workers = 1;
  uint32_t decode_workers = 1;
  support::FakeBackendOptions prefill_backend;
  support::FakeBackendOptions decode_backend;
  runtime::PrefillOptions prefill;
  runtime::DecodeOptions decode;
  bool store = false;  // one kvcache store, over memory
};

struct WorkerProcess {
  std::string name;
  cluster::Incarnation incarnation = 0;
  bool killed = false;
  std::vector<support::VirtualExecutor*> executors;
  std::unique_ptr<support::FakeBackend> backend;
  std::unique_ptr<MetricRegistry> metrics;
  std::unique_ptr<transfer::Transport> transport;
  std::unique_ptr<transfer::Region> region;
  std::unique_ptr<peer::Dialer<peer::StoreProtocol>> store_dialer;
  std::unique_ptr<runtime::StoreClient> store;  // null: the cluster has no store
  support::VirtualExecutor& control() { return *executors[0]; }
  support::VirtualExecutor& engine() { return *executors[1]; }
  support::VirtualExecutor& checksum() { return *executors[2]; }
  support::VirtualExecutor& blocking() { return *executors[3]; }
  double Metric(const std::string& name, const MetricLabels& labels = {}) {
    return metrics->AddGauge(name, "", labels).Value();
  }
  double Count(const std::string& name, const MetricLabels& labels = {}) {
    return metrics->AddCounter(name, "", labels).Value();
  }
};

struct PrefillProcess : WorkerProcess {
  std::unique_ptr<peer::Dialer<peer::PickProtocol>> pick_dialer;
  std::unique_ptr<peer::Dialer<peer::HandoffProtocol>> handoff_dialer;
  std::unique_ptr<runtime::PrefillRuntime> runtime;
};

struct DecodeProcess : WorkerProcess {
  std::unique_ptr<runtime::DecodeRuntime> runtime;
};

struct TestStore : WorkerProcess {
  std::unique_ptr<store::Tier> tier;
  std::unique_ptr<runtime::StoreRuntime> runtime;
};

class HandoffCluster {
 public:
  explicit HandoffCluster(HandoffClusterOptions options);
  ~HandoffCluster();

  std::unique_ptr<TestRequest> Request(request::Generation generation, uint32_t retries = 0);
  // Runs until all of `requests` are done; false when that takes more than `within` of virtual time.
  bool RunAll(const std::vector<TestRequest*>& requests, Duration within = Seconds(120));

  void Kill(WorkerProcess& process);    // kill -9
  void Stall(WorkerProcess& process);   // SIGSTOP
  void Resume(WorkerProcess& process);  // SIGCONT

  // Until every worker talks to the store, and nothing waits to be put.
  bool RunUntilStored();

  // Drains every living worker and waits; empty, or what is still held after `within`.
  std::string Leaks(Duration within = Seconds(20));

  support::VirtualTime& time() { return time_; }
  support::LocalNetwork& network() { return network_; }
  support::LocalFabric& fabric() { return fabric_; }
  TestBalancer& balancer() { return balancer_; }
  PrefillProcess& prefill(size_t i = 0) { return *prefill_[i]; }
  DecodeProcess& decode(size_t i = 0) { return *decode_[i]; }
  TestStore& store() { return *store_; }
  support::VirtualExecutor& gateway() { return gateway_; }
  peer::Dialer<peer::PrefillProtocol>& prefill_dialer() { return *prefill_dialer_; }
  peer::Dialer<peer::DecodeProtocol>& decode_dialer() { return *decode_dialer_; }

 private:
  void StartProcess(WorkerProcess& process, const std::string& name, const support::FakeBackendOptions& backend);
  void StartStore();
  void StartPrefill(size_t index);
  void StartDecode(size_t index);
  void SetStopped(WorkerProcess& process, bool stopped);

  const HandoffClusterOptions options_;
  support::VirtualTime time_;
  support::VirtualExecutor& gateway_;
  support::LocalNetwork network_;
  support::LocalFabric fabric_;
  TestBalancer balancer_;
  peer::StaticAddresses balancer_addresses_{{"balancer-0", "balancer-1"}};
  peer::StaticAddresses store_addresses_{{"store"}};
  std::vector<Worker> prefill_known_;
  std::unique_ptr<TestStore> store_;
  std::vector<std::unique_ptr<PrefillProcess>> prefill_;
  std::vector<std::unique_ptr<DecodeProcess>> decode_;
  std::unique_ptr<peer::Dialer<peer::PrefillProtocol>> prefill_dialer_;
  std::unique_ptr<peer::Dialer<peer::DecodeProtocol>> decode_dialer_;
};

// A request for `new_tokens` after a prompt of `prompt_tokens`; greedy when `seed` is 0, else sampled with it.
request::Generation MakeGeneration(uint32_t prompt_tokens, uint32_t new_tokens, uint64_t seed = 0,
                                   uint64_t prompt_seed = 1);

}  // namespace millrace::component
