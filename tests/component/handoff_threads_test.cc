// Workers on real threads with the loopback transport: for data races, and for the delays and stalls of a transport
// that has a thread of its own.

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "common/base/event_loop.h"
#include "common/base/metrics.h"
#include "common/peer/addresses.h"
#include "common/runtime/decode_runtime.h"
#include "common/runtime/prefill_runtime.h"
#include "common/transfer/fault/fault.h"
#include "common/transfer/loopback/loopback.h"
#include "tests/component/handoff_cluster.h"
#include "tests/support/oracle.h"

namespace millrace::component {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// Executors outlive what runs on them, which is destroyed after they stopped.
struct Threads {
  EventLoop control{"control"};
  EventLoop engine{"engine"};
  EventLoop checksum{"checksum"};
  EventLoop blocking{"blocking"};
  void Stop() {
    control.Stop();
    engine.Stop();
    checksum.Stop();
    blocking.Stop();
  }
};

class HandoffThreadsTest : public ::testing::Test {
 protected:
  HandoffThreadsTest()
      : prefill_transport_(*transfer::loopback::MakeLoopbackTransport({})),
        decode_transport_(transfer::fault::MakeFaultyTransport(*transfer::loopback::MakeLoopbackTransport({}), {})),
        region_(*prefill_transport_->Register(prefill_backend_.kv_memory())),
        pick_dialer_(network_.MakeDialer<peer::PickProtocol>(prefill_threads_.control, "prefill")),
        handoff_dialer_(network_.MakeDialer<peer::HandoffProtocol>(prefill_threads_.control, "prefill")),
        prefill_dialer_(network_.MakeDialer<peer::PrefillProtocol>(gateway_, "gateway")),
        decode_dialer_(network_.MakeDialer<peer::DecodeProtocol>(gateway_, "gateway")) {
    balancer_.workers = {{"decode", 2}};
    network_.Serve<peer::PickProtocol>("balancer", gateway_, balancer_);
    prefill_options_.incarnation = 1;
    prefill_options_.memory = {prefill_transport_->address(), region_->descriptor()};
    prefill_ = std::make_unique<runtime::PrefillRuntime>(
        runtime::PrefillWiring{prefill_threads_.control, prefill_threads_.engine, prefill_threads_.checksum,
                               prefill_backend_, *pick_dialer_, balancers_, *handoff_dialer_, nullptr, *metrics_},
        prefill_options_);
    decode_options_.incarnation = 2;
    decode_ = std::make_unique<runtime::DecodeRuntime>(
        runtime::DecodeWiring{decode_threads_.control, decode_threads_.engine, decode_threads_.checksum,
                              decode_threads_.blocking, decode_backend_, *decode_transport_, nullptr, *metrics_},
        decode_options_);
    prefill_threads_.control.Post([this] { prefill_->Start(); });
    decode_threads_.control.Post([this] { decode_->Start(); });
    network_.Serve<peer::PrefillProtocol>("prefill", prefill_threads_.control, *prefill_);
    network_.Serve<peer::HandoffProtocol>("decode", decode_threads_.control, *decode_);
    network_.Serve<peer::DecodeProtocol>("decode", decode_threads_.control, *decode_);
  }
  ~HandoffThreadsTest() override {
    gateway_.Stop();
    prefill_threads_.Stop();
    decode_threads_.Stop();
    decode_ = nullptr;
    prefill_ = nullptr;
  }

  // Runs `task` on `executor` again and again until it says true.
  bool Until(EventLoop& executor, const std::function<bool()>& task) {
    std::mutex mutex;
    std::condition_variable wake;
    bool done = false;
    std::function<void()> again = [&] {
      if (task()) {
        std::lock_guard lock(mutex);
        done = true;
        wake.notify_one();
      } else {
        executor.PostAfter(Milliseconds(2), [&] { again(); });
      }
    };
    executor.Post([&] { again(); });
    std::unique_lock lock(mutex);
    const bool in_time = wake.wait_for(lock, kPatience, [&] { return done; });
    if (!in_time) std::abort();  // the task above refers to this frame
    return true;
  }

  void RunAll(const std::vector<request::Generation>& generations) {
    std::vector<std::unique_ptr<TestRequest>> requests;
    gateway_.Post([&] {
      for (const request::Generation& generation : generations) {
        requests.push_back(std::make_unique<TestRequest>(
            GatewayWiring{gateway_, *prefill_dialer_, *decode_dialer_, prefill_known_}, generation, 20));
        requests.back()->Start();
      }
    });
    Until(gateway_, [&] {
      for (const auto& request : requests) {
        if (!request->done()) return false;
      }
      return true;
    });
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(requests[i]->result().ok()) << requests[i]->result().ToString();
      EXPECT_EQ(requests[i]->generated(), support::OracleTokens(generations[i])) << i;
      EXPECT_TRUE(requests[i]->faults().empty());
    }
    Until(gateway_, [&] {
      requests.clear();
      return true;
    });
    Until(prefill_threads_.control, [&] {
      prefill_->Drain();
      return prefill_->idle();
    });
    Until(decode_threads_.control, [&] {
      decode_->Drain();
      return decode_->idle();
    });
  }

  static std::vector<request::Generation> Some(uint32_t count) {
    std::vector<request::Generation> generations;
    for (uint32_t i = 0; i < count; ++i) generations.push_back(MakeGeneration(1 + (i * 61) % 300, 4 + i, i, i));
    return generations;
  }

  Threads prefill_threads_;
  Threads decode_threads_;
  EventLoop gateway_{"gateway"};
  support::LocalNetwork network_;
  support::FakeBackend prefill_backend_{{.blocks = 128}};
  support::FakeBackend decode_backend_{{.blocks = 128}};
  std::unique_ptr<MetricRegistry> metrics_ = MakeMemoryMetrics();
  std::unique_ptr<transfer::Transport> prefill_transport_;
  std::unique_ptr<transfer::fault::FaultyTransport> decode_transport_;
  std::unique_ptr<transfer::Region> region_;
  TestBalancer balancer_;
  peer::StaticAddresses balancers_{{"balancer"}};
  std::vector<Worker> prefill_known_ = {{"prefill", 1}};
  std::unique_ptr<peer::Dialer<peer::PickProtocol>> pick_dialer_;
  std::unique_ptr<peer::Dialer<peer::HandoffProtocol>> handoff_dialer_;
  std::unique_ptr<peer::Dialer<peer::PrefillProtocol>> prefill_dialer_;
  std::unique_ptr<peer::Dialer<peer::DecodeProtocol>> decode_dialer_;
  runtime::PrefillOptions prefill_options_;
  runtime::DecodeOptions decode_options_;
  std::unique_ptr<runtime::PrefillRuntime> prefill_;
  std::unique_ptr<runtime::DecodeRuntime> decode_;
};

TEST_F(HandoffThreadsTest, ManyRequestsAtOnceEqualTheOracle) { RunAll(Some(24)); }

TEST_F(HandoffThreadsTest, TransportThatCorruptsFailsAndDropsNowAndThen) {
  using transfer::fault::FaultKind;
  decode_transport_->SetPlan({7,
                              {{.kind = FaultKind::kCorrupt, .probability = 0.01, .bytes = 3},
                               {.kind = FaultKind::kFail, .probability = 0.01, .bytes = 8},
                               {.kind = FaultKind::kDropLink, .probability = 0.003},
                               {.kind = FaultKind::kDelay, .probability = 0.05, .delay = Milliseconds(3)}}});
  RunAll(Some(16));
  EXPECT_GT(decode_transport_->faults(), 0u);
}

TEST_F(HandoffThreadsTest, GetThatStallsIsGivenUpWithItsLink) {
  decode_transport_->SetPlan({1, {{.kind = transfer::fault::FaultKind::kStall, .first_get = 2, .gets = 1}}});
  std::vector<std::unique_ptr<TestRequest>> requests;
  Until(gateway_, [&] {
    requests.push_back(std::make_unique<TestRequest>(
        GatewayWiring{gateway_, *prefill_dialer_, *decode_dialer_, prefill_known_}, MakeGeneration(100, 5), 0));
    requests.back()->Start();
    return true;
  });
  Until(decode_threads_.control, [&] { return decode_transport_->faults() > 0; });
  Until(gateway_, [&] {
    requests.front()->Cancel();
    return true;
  });
  RunAll(Some(4));
  Until(gateway_, [&] {
    requests.clear();
    return true;
  });
}

}  // namespace
}  // namespace millrace::component
