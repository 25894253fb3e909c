#pragma once
// One virtual cluster for the tests of the store's runtime and client: executors under virtual time, streams and
// transports of tests/support, and store processes over tiers in memory.

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/runtime/store_runtime.h"
#include "common/store/fault/fault_tier.h"
#include "common/store/memory/memory_tier.h"
#include "tests/component/store_blocks.h"
#include "tests/support/local_network.h"
#include "tests/support/local_transport.h"
#include "tests/support/virtual_time.h"

namespace millrace::runtime {

constexpr uint64_t kBlockBytes = 8192;

struct Cluster {
  explicit Cluster(uint64_t seed) : time(seed), fabric(time.Add("fabric")) {}
  support::VirtualTime time;
  support::LocalFabric fabric;
  support::LocalNetwork network;
};

// A store that serves at `address`. Its tier outlives it: give the same tier to the next one after a kill.
class StoreProcess {
 public:
  StoreProcess(Cluster& cluster, const std::string& address, store::Tier& tier, StoreRuntimeOptions options)
      : cluster_(cluster),
        address_(address),
        control_(cluster.time.Add(address + "-control")),
        reader_(cluster.time.Add(address + "-reader")),
        writer_(cluster.time.Add(address + "-writer")),
        teardown_(cluster.time.Add(address + "-teardown")),
        transport_(cluster.fabric.MakeTransport(address)),
        metrics_(MakeMemoryMetrics()) {
    auto made = StoreRuntime::Make({.control = control_,
                                    .readers = {&reader_},
                                    .writer = writer_,
                                    .teardown = teardown_,
                                    .tier = tier,
                                    .transport = *transport_,
                                    .metrics = *metrics_},
                                   options);
    EXPECT_TRUE(made.ok());
    runtime_ = *std::move(made);
    runtime_->Start();
    cluster.network.Serve<peer::StoreProtocol>(address, control_, *runtime_);
  }

  // As kill -9: peers see the streams close; nothing here runs any more and its memory gives no more bytes.
  void Kill() {
    cluster_.fabric.Hold(address_);
    SetStopped(true);
    cluster_.network.Kill(address_);
  }
  void Stop() {  // SIGSTOP
    cluster_.fabric.Hold(address_);
    cluster_.network.Stall(address_);
    SetStopped(true);
  }
  void Resume() {
    SetStopped(false);
    cluster_.network.Resume(address_);
    cluster_.fabric.Release(address_);
  }

  StoreRuntime& runtime() { return *runtime_; }
  double gauge(const std::string& name) { return metrics_->AddGauge("millrace_store_" + name, "").Value(); }
  double counter(const std::string& name, const MetricLabels& labels = {}) {
    return metrics_->AddCounter("millrace_store_" + name, "", labels).Value();
  }
  support::VirtualExecutor& reader() { return reader_; }
  support::VirtualExecutor& writer() { return writer_; }

 private:
  void SetStopped(bool stopped) {
    for (auto* executor : {&control_, &reader_, &writer_, &teardown_}) executor->set_stopped(stopped);
  }

  Cluster& cluster_;
  const std::string address_;
  support::VirtualExecutor& control_;
  support::VirtualExecutor& reader_;
  support::VirtualExecutor& writer_;
  support::VirtualExecutor& teardown_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<MetricRegistry> metrics_;
  std::unique_ptr<StoreRuntime> runtime_;
};

inline std::unique_ptr<store::Tier> MemoryTier() {
  auto tier =
      store::OpenMemoryTier({.capacity_bytes = 64 << 20, .unix_seconds = [] { return int64_t{1'700'000'000}; }});
  EXPECT_TRUE(tier.ok());
  return *std::move(tier);
}

inline StoreRuntimeOptions SmallStore() {
  return {.incarnation = 77,
          .read_bytes = 32 * kBlockBytes,
          .staging_bytes = 8 * kBlockBytes,
          .max_load_blocks = 4,
          .max_puts_in_flight = 8,
          .max_batch_puts = 4};
}

}  // namespace millrace::runtime
