// The worker's store client against real store runtimes, under faults: whatever the store does, calls end in time and
// what they report is right.

#include "common/runtime/store_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/component/store_rig.h"

namespace millrace::runtime {
namespace {

constexpr uint32_t kPages = 64;

// Addresses that a test may change.
class ChangingAddresses final : public peer::AddressSource {
 public:
  std::vector<std::string> Addresses() const override { return list; }
  std::vector<std::string> list;
};

class Worker {
 public:
  Worker(Cluster& cluster, const std::string& name, std::vector<std::string> stores)
      : cluster_(cluster),
        control_(cluster.time.Add(name + "-control")),
        blocking_(cluster.time.Add(name + "-blocking")),
        transport_(cluster.fabric.MakeTransport(name)),
        pages_(kPages * kBlockBytes),
        region_(*transport_->Register(pages_)),
        dialer_(cluster.network.MakeDialer<peer::StoreProtocol>(control_, name)),
        metrics_(MakeMemoryMetrics()) {
    addresses.list = std::move(stores);
    MakeClient();
  }
  void MakeClient() {
    client_ = std::make_unique<StoreClient>(
        StoreClientWiring{control_, blocking_, *dialer_, addresses, *transport_, *metrics_},
        StoreClientOptions{.incarnation = 9,
                           .layout_digest = "layout",
                           .block_bytes = kBlockBytes,
                           .kv_memory = pages_,
                           .memory = {transport_->address(), region_->descriptor()},
                           .max_queued_puts = 12,
                           .max_puts_on_wire = 4,
                           .max_calls = 16});
  }

  StoreClient& client() { return *client_; }
  void DropClient() { client_ = nullptr; }
  std::span<std::byte> Page(uint32_t page) { return std::span(pages_).subspan(page * kBlockBytes, kBlockBytes); }
  double counter(const std::string& name, const MetricLabels& labels) {
    return metrics_->AddCounter("millrace_store_client_" + name, "", labels).Value();
  }
  support::VirtualExecutor& control() { return control_; }
  support::VirtualExecutor& blocking() { return blocking_; }

  ChangingAddresses addresses;

 private:
  Cluster& cluster_;
  support::VirtualExecutor& control_;
  support::VirtualExecutor& blocking_;
  std::unique_ptr<transfer::Transport> transport_;
  std::vector<std::byte> pages_;
  std::unique_ptr<transfer::Region> region_;
  std::unique_ptr<peer::Dialer<peer::StoreProtocol>> dialer_;
  std::unique_ptr<MetricRegistry> metrics_;
  std::unique_ptr<StoreClient> client_;
};

class StoreClientTest : public testing::TestWithParam<uint64_t> {
 protected:
  StoreClientTest() : cluster_(GetParam()), memory_(MemoryTier()), tier_(*memory_, faults_) {}

  void Start() {
    store_ = std::make_unique<StoreProcess>(cluster_, "store", tier_, SmallStore());
    worker_ = std::make_unique<Worker>(cluster_, "worker", std::vector<std::string>{"store"});
    ASSERT_TRUE(Until([&] { return worker_->client().connected() == 1; }));
  }
  bool Until(const std::function<bool()>& done, Duration within = Seconds(10)) {
    return cluster_.time.RunUntil(done, within);
  }
  TimePoint In(Duration time) const { return cluster_.time.Now() + time; }

  // Begins a call on the worker's control executor, as its contract asks.
  std::shared_ptr<std::optional<uint32_t>> Lookup(uint32_t from, uint32_t to, Duration within = Seconds(1)) {
    auto result = std::make_shared<std::optional<uint32_t>>();
    worker_->control().Post([this, from, to, deadline = In(within), result] {
      worker_->client().Lookup({.chain = TestKey(0), .keys = TestKeys(from, to), .deadline = deadline},
                               [result](uint32_t present) { *result = present; });
      EXPECT_FALSE(result->has_value()) << "called back from inside the call";
    });
    return result;
  }
  std::shared_ptr<std::optional<uint32_t>> Load(uint32_t from, uint32_t to, uint32_t first_page,
                                                Duration within = Seconds(1)) {
    auto result = std::make_shared<std::optional<uint32_t>>();
    std::vector<kv::BlockIndex> pages;
    for (uint32_t n = from; n < to; ++n) pages.push_back(first_page + n - from);
    worker_->control().Post([this, from, to, pages, deadline = In(within), result] {
      worker_->client().LoadInto(
          {.chain = TestKey(0), .keys = TestKeys(from, to), .blocks = pages, .deadline = deadline},
          [result](uint32_t loaded) { *result = loaded; });
      EXPECT_FALSE(result->has_value());
    });
    return result;
  }
  std::shared_ptr<std::optional<Status>> Put(uint32_t n, uint32_t page, Duration within = Seconds(1)) {
    auto result = std::make_shared<std::optional<Status>>();
    FillBlock(worker_->Page(page), n);
    worker_->control().Post([this, n, page, deadline = In(within), result] {
      worker_->client().Put({.chain = TestKey(0),
                             .key = TestKey(n),
                             .block = page,
                             .crc32c = BlockCrc(worker_->Page(page)),
                             .deadline = deadline},
                            [result](const Status& status) { *result = status; });
      EXPECT_FALSE(result->has_value());
    });
    return result;
  }
  template <class T>
  T Wait(std::shared_ptr<std::optional<T>> result, Duration within = Seconds(10)) {
    EXPECT_TRUE(Until([&] { return result->has_value(); }, within));
    return result->value_or(T());
  }
  void PutBlocks(uint32_t from, uint32_t to) {
    for (uint32_t n = from; n < to; ++n) {
      const Status status = Wait(Put(n, 0));
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  void ExpectBlocks(uint32_t from, uint32_t to, uint32_t first_page) {
    for (uint32_t n = from; n < to; ++n) EXPECT_TRUE(IsBlock(worker_->Page(first_page + n - from), n)) << n;
  }
  void ExpectNothingHeldAtTheStore() {
    EXPECT_TRUE(Until([&] { return store_->gauge("leases") == 0 && store_->gauge("pinned_buffers") == 0; }));
  }

  Cluster cluster_;
  std::unique_ptr<store::Tier> memory_;
  store::TierFaults faults_;
  store::FaultTier tier_;
  std::unique_ptr<StoreProcess> store_;
  std::unique_ptr<Worker> worker_;
};

TEST_P(StoreClientTest, WhatWasPutIsFoundAndLoaded) {
  Start();
  PutBlocks(0, 11);
  EXPECT_EQ(Wait(Lookup(0, 20)), 11u);
  EXPECT_EQ(Wait(Lookup(4, 8)), 4u);
  EXPECT_EQ(Wait(Load(0, 11, 10)), 11u);  // several windows of 4
  ExpectBlocks(0, 11, 10);
  EXPECT_EQ(Wait(Load(5, 20, 30)), 6u);
  ExpectBlocks(5, 11, 30);
  EXPECT_EQ(worker_->counter("load_blocks_total", {{"result", "loaded"}}), 17);
  ExpectNothingHeldAtTheStore();
}

TEST_P(StoreClientTest, NothingAskedIsAnsweredWithNothing) {
  Start();
  EXPECT_EQ(Wait(Lookup(0, 0)), 0u);
  EXPECT_EQ(Wait(Load(0, 0, 0)), 0u);
}

TEST_P(StoreClientTest, WithoutAStoreEveryCallIsAMissAtOnce) {
  worker_ = std::make_unique<Worker>(cluster_, "worker", std::vector<std::string>{});
  EXPECT_EQ(Wait(Lookup(0, 5), Duration(1)), 0u);
  EXPECT_EQ(Wait(Load(0, 5, 0), Duration(1)), 0u);
  EXPECT_EQ(Wait(Put(0, 0), Duration(1)).reason(), Reason::kPeerLost);
}

TEST_P(StoreClientTest, AbsentStoreIsAMissAtOnceAndUsedWhenItAppears) {
  worker_ = std::make_unique<Worker>(cluster_, "worker", std::vector<std::string>{"store"});
  cluster_.time.Advance(Seconds(10));
  EXPECT_EQ(Wait(Lookup(0, 5), Duration(1)), 0u);
  EXPECT_EQ(Wait(Put(0, 0), Duration(1)).reason(), Reason::kPeerLost);
  store_ = std::make_unique<StoreProcess>(cluster_, "store", tier_, SmallStore());
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 1; }, Milliseconds(2500)));
  PutBlocks(0, 3);
}

TEST_P(StoreClientTest, CorruptTransferIsNeverReportedAsLoaded) {
  Start();
  PutBlocks(0, 8);
  cluster_.fabric.CorruptNext(1);
  const uint32_t loaded = Wait(Load(0, 8, 10));
  EXPECT_LT(loaded, 8u);
  ExpectBlocks(0, loaded, 10);
  EXPECT_EQ(worker_->counter("load_blocks_total", {{"result", "corrupt"}}), 1);
  EXPECT_EQ(Wait(Load(0, 8, 10)), 8u);
  ExpectNothingHeldAtTheStore();
}

TEST_P(StoreClientTest, DiskThatCorruptsBehindTheStoresBackIsNoticed) {
  Start();
  PutBlocks(0, 4);
  faults_.read_corrupts = true;
  EXPECT_EQ(Wait(Load(0, 4, 10)), 0u);
  faults_.read_corrupts = false;
  EXPECT_EQ(Wait(Load(0, 4, 10)), 4u);
}

TEST_P(StoreClientTest, StoreKilledInTheMiddleOfALoadIsAMissAtOnceAndNothingIsWrittenAfterwards) {
  Start();
  PutBlocks(0, 12);
  cluster_.fabric.Hold("store");
  const auto load = Load(0, 12, 10, Seconds(30));
  ASSERT_TRUE(Until([&] { return cluster_.fabric.pending() > 0; }));
  store_->Kill();
  EXPECT_EQ(Wait(load, Milliseconds(10)), 0u);
  EXPECT_EQ(cluster_.fabric.pending(), 0u);
  EXPECT_EQ(Wait(Lookup(0, 12), Duration(1)), 0u);
  // The blocks are the caller's again.
  for (uint32_t page = 10; page < 22; ++page) FillBlock(worker_->Page(page), 1000 + page);
  cluster_.fabric.Release("store");
  cluster_.time.Advance(Seconds(1));
  for (uint32_t page = 10; page < 22; ++page) EXPECT_TRUE(IsBlock(worker_->Page(page), 1000 + page));
}

TEST_P(StoreClientTest, StoreRestartedWithItsDiskServesItsBlocksAgain) {
  Start();
  PutBlocks(0, 6);
  store_->Kill();
  const auto killed = std::move(store_);
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 0; }));
  cluster_.fabric.Release("store");
  store_ = std::make_unique<StoreProcess>(cluster_, "store", tier_, SmallStore());
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 1; }));
  EXPECT_EQ(Wait(Load(0, 6, 10)), 6u);
  ExpectBlocks(0, 6, 10);
}

TEST_P(StoreClientTest, StoreStoppedInTheMiddleOfALoadEndsItByItsDeadlineAndResumingHarmsNothing) {
  Start();
  PutBlocks(0, 12);
  cluster_.fabric.Hold("store");
  const auto load = Load(0, 12, 10, Milliseconds(400));
  ASSERT_TRUE(Until([&] { return cluster_.fabric.pending() > 0; }));
  store_->Stop();
  const TimePoint begun = cluster_.time.Now();
  EXPECT_EQ(Wait(load), 0u);
  EXPECT_LE(cluster_.time.Now() - begun, Milliseconds(400));
  for (uint32_t page = 10; page < 22; ++page) FillBlock(worker_->Page(page), 1000 + page);
  store_->Resume();
  cluster_.time.Advance(Seconds(3));
  for (uint32_t page = 10; page < 22; ++page) EXPECT_TRUE(IsBlock(worker_->Page(page), 1000 + page));
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 1; }));
  EXPECT_EQ(Wait(Load(0, 12, 30)), 12u);
  ExpectBlocks(0, 12, 30);
  ExpectNothingHeldAtTheStore();
}

TEST_P(StoreClientTest, LoadIsNotEndedBeforeItsLinkIs) {
  Start();
  PutBlocks(0, 4);
  cluster_.fabric.Hold("store");
  const auto load = Load(0, 4, 10, Milliseconds(100));
  ASSERT_TRUE(Until([&] { return cluster_.fabric.pending() > 0; }));
  worker_->blocking().set_stopped(true);  // the link's end takes its time
  cluster_.time.Advance(Milliseconds(900));
  EXPECT_FALSE(load->has_value());
  EXPECT_GT(cluster_.fabric.pending(), 0u);
  worker_->blocking().set_stopped(false);
  EXPECT_EQ(Wait(load), 0u);
  EXPECT_EQ(cluster_.fabric.pending(), 0u);
}

TEST_P(StoreClientTest, StoppedStoreIsBypassedAfterTheSilenceDeadline) {
  Start();
  PutBlocks(0, 4);
  store_->Stop();
  const auto lookup = Lookup(0, 4, Milliseconds(300));
  const auto load = Load(0, 4, 10, Milliseconds(300));
  const auto put = Put(50, 1, Milliseconds(300));
  cluster_.time.Advance(Milliseconds(301));
  EXPECT_EQ(lookup->value_or(99), 0u);
  EXPECT_EQ(load->value_or(99), 0u);
  EXPECT_EQ(put->value_or(OkStatus()).reason(), Reason::kDeadline);
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 0; }, Seconds(2)));
  EXPECT_EQ(Wait(Lookup(0, 4, Seconds(60)), Duration(1)), 0u);
  store_->Resume();
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 1; }, Seconds(5)));
  EXPECT_EQ(Wait(Lookup(0, 4)), 4u);
}

TEST_P(StoreClientTest, SlowDiskCostsAMissAndItsLateAnswerIsReleased) {
  Start();
  PutBlocks(0, 4);
  store_->reader().set_stopped(true);
  EXPECT_EQ(Wait(Load(0, 4, 10, Milliseconds(100))), 0u);
  EXPECT_EQ(worker_->client().connected(), 1u);
  store_->reader().set_stopped(false);
  ExpectNothingHeldAtTheStore();
  EXPECT_EQ(Wait(Load(0, 4, 10)), 4u);
}

TEST_P(StoreClientTest, PutsBeyondTheQueueAreDroppedAtOnceAndTheRestArrives) {
  Start();
  cluster_.fabric.Hold("worker");
  std::vector<std::shared_ptr<std::optional<Status>>> puts;
  for (uint32_t n = 0; n < 20; ++n) puts.push_back(Put(n, n, Seconds(5)));
  cluster_.time.Advance(Milliseconds(1));
  uint32_t dropped = 0;
  for (const auto& put : puts) dropped += put->has_value() && (*put)->reason() == Reason::kOverloaded;
  EXPECT_EQ(dropped, 8u);
  cluster_.fabric.Release("worker");
  ASSERT_TRUE(
      Until([&] { return std::all_of(puts.begin(), puts.end(), [](const auto& p) { return p->has_value(); }); }));
  uint32_t stored = 0;
  for (const auto& put : puts) stored += (*put)->ok();
  EXPECT_EQ(stored, 12u);
}

TEST_P(StoreClientTest, PageChangedDuringItsPutIsRefusedByItsChecksum) {
  Start();
  cluster_.fabric.Hold("worker");
  const auto put = Put(1, 1, Milliseconds(200));
  ASSERT_TRUE(Until([&] { return cluster_.fabric.pending() > 0; }));
  EXPECT_EQ(Wait(put).reason(), Reason::kDeadline);
  FillBlock(worker_->Page(1), 2);  // the page is the caller's again
  cluster_.fabric.Release("worker");
  cluster_.time.Advance(Milliseconds(500));
  EXPECT_EQ(Wait(Lookup(1, 2)), 0u);
  EXPECT_EQ(store_->counter("corrupt_blocks_total", {{"where", "transfer"}}), 1);
}

TEST_P(StoreClientTest, RefusalsOfTheStoreArriveWithTheirReason) {
  Start();
  faults_.writable_bytes = 0;
  EXPECT_EQ(Wait(Put(1, 1)).reason(), Reason::kNoSpace);
  faults_.writable_bytes = -1;
  EXPECT_TRUE(Wait(Put(1, 1)).ok());
}

TEST_P(StoreClientTest, TooManyCallsAreMisses) {
  Start();
  PutBlocks(0, 1);
  std::vector<std::shared_ptr<std::optional<uint32_t>>> lookups;
  for (int i = 0; i < 40; ++i) lookups.push_back(Lookup(0, 1));
  uint32_t hits = 0;
  for (const auto& lookup : lookups) hits += Wait(lookup);
  EXPECT_GE(hits, 16u);
  EXPECT_EQ(Wait(Lookup(0, 1)), 1u);
}

TEST_P(StoreClientTest, ChainsAreSpreadOverStoresAndTheLossOfOneCostsOnlyItsOwn) {
  const auto other_tier = MemoryTier();
  store_ = std::make_unique<StoreProcess>(cluster_, "store", tier_, SmallStore());
  StoreProcess other(cluster_, "store2", *other_tier, SmallStore());
  worker_ = std::make_unique<Worker>(cluster_, "worker", std::vector<std::string>{"store", "store2"});
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 2; }));
  const auto present = [&](uint32_t chain) {
    auto result = std::make_shared<std::optional<uint32_t>>();
    worker_->control().Post([&, chain, result] {
      worker_->client().Lookup(
          {.chain = TestKey(chain), .keys = TestKeys(chain, chain + 1), .deadline = In(Seconds(1))},
          [result](uint32_t n) { *result = n; });
    });
    return Wait(result);
  };
  for (uint32_t chain = 0; chain < 20; ++chain) {
    auto done = std::make_shared<std::optional<Status>>();
    FillBlock(worker_->Page(0), chain);
    worker_->control().Post([&, chain, done] {
      worker_->client().Put({.chain = TestKey(chain),
                             .key = TestKey(chain),
                             .block = 0,
                             .crc32c = BlockCrc(worker_->Page(0)),
                             .deadline = In(Seconds(1))},
                            [done](const Status& status) { *done = status; });
    });
    ASSERT_TRUE(Wait(done).ok());
  }
  const uint64_t mine = tier_.Stats().blocks, others = other_tier->Stats().blocks;
  EXPECT_EQ(mine + others, 20u);
  EXPECT_GT(mine, 2u);
  EXPECT_GT(others, 2u);
  other.Kill();
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 1; }));
  uint64_t left = 0;
  for (uint32_t chain = 0; chain < 20; ++chain) left += present(chain);
  EXPECT_EQ(left, mine);
  worker_->addresses.list = {"store"};
  cluster_.time.Advance(Seconds(1));
  EXPECT_EQ(worker_->client().connected(), 1u);
}

TEST_P(StoreClientTest, ClientDestroyedInTheMiddleOfALoadWritesNothingAfterwards) {
  Start();
  PutBlocks(0, 4);
  cluster_.fabric.Hold("store");
  const auto load = Load(0, 4, 10);
  ASSERT_TRUE(Until([&] { return cluster_.fabric.pending() > 0; }));
  worker_->DropClient();
  EXPECT_EQ(cluster_.fabric.pending(), 0u);
  cluster_.fabric.Release("store");
  cluster_.time.Advance(Seconds(40));
  EXPECT_FALSE(load->has_value());
  ExpectNothingHeldAtTheStore();
}

// Random calls under random stops, kills, lost gets and corrupt bytes: each call ends in time, what is reported as
// loaded is right, pages given back are not written.
TEST_P(StoreClientTest, RandomFaultsNeverGiveWrongBlocksNorHang) {
  Start();
  Rng rng(GetParam() * 1000 + 7);
  std::vector<std::unique_ptr<StoreProcess>> graveyard;
  bool stopped = false;
  uint64_t loaded_blocks = 0;
  for (int round = 0; round < 60; ++round) {
    const auto from = static_cast<uint32_t>(rng.Below(20));
    const uint32_t to = from + 1 + static_cast<uint32_t>(rng.Below(10));
    for (uint32_t page = 20; page < 40; ++page) FillBlock(worker_->Page(page), 5000 + page);
    std::vector<std::shared_ptr<std::optional<Status>>> puts;
    for (uint32_t i = 0; i < 4; ++i) puts.push_back(Put(static_cast<uint32_t>(rng.Below(30)), i, Milliseconds(700)));
    const auto lookup = Lookup(from, to, Milliseconds(200));
    const auto load = Load(from, to, 20, Milliseconds(500));
    for (uint64_t steps = rng.Below(60); steps > 0; --steps) cluster_.time.RunOne();
    switch (rng.Below(8)) {
      case 0:
        cluster_.fabric.CorruptNext(static_cast<uint32_t>(rng.Below(3)));
        break;
      case 1:
        cluster_.fabric.FailNext(1);
        break;
      case 2:
        if (!std::exchange(stopped, true)) store_->Stop();
        break;
      case 3:
        if (std::exchange(stopped, false)) store_->Resume();
        break;
      case 4:
        if (std::exchange(stopped, false)) store_->Resume();
        store_->Kill();
        graveyard.push_back(std::move(store_));
        cluster_.fabric.Release("store");
        store_ = std::make_unique<StoreProcess>(cluster_, "store", tier_, SmallStore());
        break;
      default:
        break;
    }
    cluster_.time.Advance(Milliseconds(701));
    ASSERT_TRUE(lookup->has_value() && load->has_value()) << "round " << round;
    for (const auto& put : puts) ASSERT_TRUE(put->has_value()) << "round " << round;
    const uint32_t loaded = **load;
    loaded_blocks += loaded;
    ASSERT_LE(loaded, to - from);
    ExpectBlocks(from, from + loaded, 20);
    for (uint32_t page = 20; page < 40; ++page) FillBlock(worker_->Page(page), 6000 + page);
    cluster_.time.Advance(Milliseconds(static_cast<int64_t>(rng.Below(1500))));
    for (uint32_t page = 20; page < 40; ++page) ASSERT_TRUE(IsBlock(worker_->Page(page), 6000 + page));
  }
  if (stopped) store_->Resume();
  ASSERT_TRUE(Until([&] { return worker_->client().connected() == 1; }));
  cluster_.time.Advance(Seconds(3));
  EXPECT_EQ(store_->gauge("leases"), 0);
  EXPECT_EQ(store_->gauge("puts_in_flight"), 0);
  EXPECT_GT(loaded_blocks, 20u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StoreClientTest, testing::Range<uint64_t>(1, 9));

}  // namespace
}  // namespace millrace::runtime
