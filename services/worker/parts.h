#pragma once
// What prefill and decode workers are made of beside their runtime: engine, KV memory that peers can read, threads,
// client of the stores, reports to the balancers.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/event_loop.h"
#include "common/engine/backend.h"
#include "common/peer/protocols.h"
#include "common/rpc/addresses.h"
#include "common/runtime/store_client.h"
#include "common/runtime/worker_reporter.h"
#include "common/transfer/transport.h"
#include "services/shell/process.h"
#include "services/worker/config.h"
#include "services/worker/scoped_executor.h"

namespace millrace::worker {

class WorkerParts {
 public:
  // Loads the model; blocks for as long as that takes.
  static StatusOr<std::unique_ptr<WorkerParts>> Open(const WorkerConfig& config, shell::Process& process);
  // After StopThreads and the end of the runtime.
  ~WorkerParts() = default;

  Executor& control() { return control_; }
  Executor& engine() { return engine_; }
  Executor& checksum() { return checksum_; }
  Executor& blocking() { return blocking_; }
  engine::Backend& backend() { return *backend_; }
  transfer::Transport& transport() { return *transport_; }
  peer::MemoryAddress memory() const { return {transport_->address(), region_->descriptor()}; }
  runtime::StoreClient* store() { return store_.get(); }  // null: none configured
  uint32_t context_tokens() const;                        // longest sequence that engine and KV memory hold

  // Tells the balancers that this worker can be reached at `address`. On the control executor, as all below.
  void StartReports(const shell::Process& process, cluster::Role role, const std::string& address,
                    uint32_t max_sequences, std::function<cluster::Load()> load);
  runtime::WorkerReporter* reporter() { return reporter_.get(); }  // null before StartReports
  bool ready() const { return reporter_ != nullptr && reporter_->connected() > 0; }
  // Calls `done` once when `idle()` holds, asked again and again.
  void WaitUntilIdle(std::function<bool()> idle, std::function<void()> done);
  std::vector<LogField> StatusFields(const cluster::Load& load) const;
  // Joins the threads and drops what they posted to control: nothing of this worker runs afterwards.
  void StopThreads();

 private:
  WorkerParts(const WorkerConfig& config, shell::Process& process);
  Status Load(shell::Process& process);
  Status OpenStores(shell::Process& process);

  const WorkerConfig config_;
  MetricRegistry& metrics_;
  ScopedExecutor control_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<transfer::Memory> kv_memory_;  // the backend's
  std::unique_ptr<engine::Backend> backend_;
  std::unique_ptr<transfer::Region> region_;
  EventLoop engine_{"engine"};
  EventLoop checksum_{"checksum"};
  EventLoop blocking_{"links"};
  std::unique_ptr<rpc::DnsAddresses> balancers_;
  std::unique_ptr<rpc::DnsAddresses> stores_;
  std::unique_ptr<peer::Dialer<peer::ReportProtocol>> report_dialer_;
  std::unique_ptr<peer::Dialer<peer::StoreProtocol>> store_dialer_;
  std::unique_ptr<runtime::StoreClient> store_;
  std::unique_ptr<runtime::WorkerReporter> reporter_;
};

}  // namespace millrace::worker
