// Store and clients on real threads: for the thread sanitizer.

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "common/base/event_loop.h"
#include "common/runtime/store_client.h"
#include "common/runtime/store_runtime.h"
#include "common/store/memory/memory_tier.h"
#include "common/transfer/loopback/loopback.h"
#include "tests/component/store_blocks.h"
#include "tests/support/local_network.h"

namespace millrace::runtime {
namespace {

constexpr uint64_t kSmallBlock = 4096;
constexpr uint32_t kBlocks = 24;

struct StoreThreads {
  StoreThreads(support::LocalNetwork& network, store::Tier& tier)
      : network_(network), transport_(*transfer::loopback::MakeLoopbackTransport({})), metrics_(MakeMemoryMetrics()) {
    runtime_ = *StoreRuntime::Make({.control = control_,
                                    .readers = {&reader_, &reader2_},
                                    .writer = writer_,
                                    .teardown = teardown_,
                                    .tier = tier,
                                    .transport = *transport_,
                                    .metrics = *metrics_},
                                   {.incarnation = 1, .read_bytes = 1 << 20, .staging_bytes = 1 << 18});
    network_.Serve<peer::StoreProtocol>("store", control_, *runtime_);
    control_.Post([this] { runtime_->Start(); });
  }
  ~StoreThreads() {
    network_.Kill("store");
    for (EventLoop* loop : {&reader_, &reader2_, &writer_, &teardown_}) loop->Stop();
    std::promise<void> gone;
    control_.Post([&] {
      runtime_ = nullptr;
      gone.set_value();
    });
    gone.get_future().wait();
    control_.Stop();
  }

 private:
  support::LocalNetwork& network_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<MetricRegistry> metrics_;
  EventLoop control_{"s-control"}, reader_{"s-read"}, reader2_{"s-read2"}, writer_{"s-write"}, teardown_{"s-teardown"};
  std::unique_ptr<StoreRuntime> runtime_;
};

// Puts its blocks and loads them, over and over, all calls begun at once.
class WorkerThreads {
 public:
  WorkerThreads(support::LocalNetwork& network, const std::string& name, uint32_t first)
      : first_(first),
        transport_(*transfer::loopback::MakeLoopbackTransport({})),
        memory_(*transport_->Allocate(2 * kBlocks * kSmallBlock)),
        region_(*transport_->Register(memory_->bytes())),
        metrics_(MakeMemoryMetrics()),
        dialer_(network.MakeDialer<peer::StoreProtocol>(control_, name)),
        client_(std::make_unique<StoreClient>(
            StoreClientWiring{control_, blocking_, *dialer_, addresses_, *transport_, *metrics_},
            StoreClientOptions{.incarnation = first + 1,
                               .layout_digest = "layout",
                               .block_bytes = kSmallBlock,
                               .kv_memory = memory_->bytes(),
                               .memory = {transport_->address(), region_->descriptor()}})) {
    for (uint32_t i = 0; i < kBlocks; ++i) FillBlock(Page(i), first_ + i);
    control_.Post([this] { Round(); });
  }
  ~WorkerThreads() {
    blocking_.Stop();
    std::promise<void> gone;
    control_.Post([&] {
      client_ = nullptr;
      gone.set_value();
    });
    gone.get_future().wait();
    control_.Stop();
  }

  std::atomic<uint64_t> loaded{0};
  std::atomic<uint64_t> wrong{0};

 private:
  std::span<std::byte> Page(uint32_t page) { return memory_->bytes().subspan(page * kSmallBlock, kSmallBlock); }

  void Round() {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      client_->Put({.chain = TestKey(first_),
                    .key = TestKey(first_ + i),
                    .block = i,
                    .crc32c = BlockCrc(Page(i)),
                    .deadline = control_.Now() + Seconds(1)},
                   [](const Status&) {});
    }
    std::vector<kv::BlockIndex> pages;
    for (uint32_t i = 0; i < kBlocks; ++i) pages.push_back(kBlocks + i);
    client_->LoadInto({.chain = TestKey(first_),
                       .keys = TestKeys(first_, first_ + kBlocks),
                       .blocks = pages,
                       .deadline = control_.Now() + Milliseconds(200)},
                      [this](uint32_t count) {
                        for (uint32_t i = 0; i < count; ++i) wrong += !IsBlock(Page(kBlocks + i), first_ + i);
                        loaded += count;
                        control_.PostAfter(Milliseconds(5), [this] {
                          if (client_ != nullptr) Round();
                        });
                      });
  }

  const uint32_t first_;
  EventLoop control_{"w-control"}, blocking_{"w-blocking"};
  const peer::StaticAddresses addresses_{{"store"}};
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<transfer::Memory> memory_;
  std::unique_ptr<transfer::Region> region_;
  std::unique_ptr<MetricRegistry> metrics_;
  std::unique_ptr<peer::Dialer<peer::StoreProtocol>> dialer_;
  std::unique_ptr<StoreClient> client_;
};

TEST(StoreThreads, StoresAndWorkersComeAndGo) {
  support::LocalNetwork network;
  auto tier =
      *store::OpenMemoryTier({.capacity_bytes = 16 << 20, .unix_seconds = [] { return int64_t{1'700'000'000}; }});
  auto first = std::make_unique<WorkerThreads>(network, "a", 0);
  auto second = std::make_unique<WorkerThreads>(network, "b", 12);  // half its blocks are the first one's too
  const TimePoint deadline = SystemClock().Now() + Seconds(60);
  for (int round = 0; round < 3; ++round) {
    StoreThreads store(network, *tier);
    const uint64_t before = first->loaded, others = second->loaded;
    while ((first->loaded < before + 100 || second->loaded < others + 100) && SystemClock().Now() < deadline) {
      poll(nullptr, 0, 5);
    }
    ASSERT_LT(SystemClock().Now(), deadline);
    second = std::make_unique<WorkerThreads>(network, "b", 12);
  }
  EXPECT_EQ(first->wrong, 0u);
  EXPECT_EQ(second->wrong, 0u);
}

}  // namespace
}  // namespace millrace::runtime
