// The store's runtime against a worker that speaks the protocol by hand.

#include "common/runtime/store_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/component/store_rig.h"

namespace millrace::runtime {
namespace {

constexpr uint32_t kPages = 32;

// Keeps what the store says; sends what the test says.
class ScriptedWorker {
 public:
  ScriptedWorker(Cluster& cluster, const std::string& name)
      : executor_(cluster.time.Add(name)),
        transport_(cluster.fabric.MakeTransport(name)),
        pages_(kPages * kBlockBytes),
        region_(*transport_->Register(pages_)),
        dialer_(cluster.network.MakeDialer<peer::StoreProtocol>(executor_, name)) {}

  void Connect(peer::StoreHello hello) {
    stream_ = dialer_->Open("store", {[this](peer::StoreProtocol::Down message) { Keep(std::move(message)); },
                                      [this](Status status) { closed = std::move(status); }});
    stream_->Send(std::move(hello));
    Beat();
  }
  peer::StoreHello Hello() const {
    return {.layout_digest = "layout",
            .block_bytes = kBlockBytes,
            .memory = {transport_->address(), region_->descriptor()},
            .incarnation = 5};
  }
  void Put(uint32_t n, uint32_t page) {
    FillBlock(Page(page), n);
    Send(peer::PutBlock{.tag = n, .key = TestKey(n), .offset = page * kBlockBytes, .crc32c = BlockCrc(Page(page))});
  }
  void Send(peer::StoreProtocol::Up message) { stream_->Send(std::move(message)); }
  void Leave() { stream_ = nullptr; }
  void Silence() { silent_ = true; }
  std::span<std::byte> Page(uint32_t page) { return std::span(pages_).subspan(page * kBlockBytes, kBlockBytes); }
  transfer::Transport& transport() { return *transport_; }

  std::optional<peer::StoreWelcome> welcome;
  std::map<uint64_t, uint32_t> lookups;
  std::map<uint64_t, peer::LoadDone> loads;
  std::map<uint64_t, Status> puts;
  std::optional<Status> closed;
  uint32_t heartbeats = 0;

 private:
  void Keep(peer::StoreProtocol::Down message) {
    if (auto* hello = std::get_if<peer::StoreWelcome>(&message)) welcome = std::move(*hello);
    if (auto* lookup = std::get_if<peer::LookupDone>(&message)) lookups[lookup->tag] = lookup->present;
    if (auto* load = std::get_if<peer::LoadDone>(&message)) loads[load->tag] = std::move(*load);
    if (auto* put = std::get_if<peer::PutDone>(&message)) puts[put->tag] = put->status;
    if (std::holds_alternative<peer::Heartbeat>(message)) ++heartbeats;
  }
  void Beat() {
    if (stream_ != nullptr && !silent_) stream_->Send(peer::Heartbeat{});
    executor_.PostAfter(Milliseconds(250), [this] { Beat(); });
  }

  support::VirtualExecutor& executor_;
  std::unique_ptr<transfer::Transport> transport_;
  std::vector<std::byte> pages_;
  std::unique_ptr<transfer::Region> region_;
  std::unique_ptr<peer::Dialer<peer::StoreProtocol>> dialer_;
  std::unique_ptr<peer::ClientStream<peer::StoreProtocol>> stream_;
  bool silent_ = false;
};

class StoreRuntimeTest : public testing::TestWithParam<uint64_t> {
 protected:
  StoreRuntimeTest() : cluster_(GetParam()), memory_(MemoryTier()), tier_(*memory_, faults_) {}

  void Start(StoreRuntimeOptions options = SmallStore()) {
    store_ = std::make_unique<StoreProcess>(cluster_, "store", tier_, options);
    worker_ = std::make_unique<ScriptedWorker>(cluster_, "worker");
    worker_->Connect(worker_->Hello());
    ASSERT_TRUE(Until([&] { return worker_->welcome.has_value(); }));
  }
  bool Until(const std::function<bool()>& done, Duration within = Seconds(5)) {
    return cluster_.time.RunUntil(done, within);
  }
  void PutBlocks(uint32_t from, uint32_t to) {
    for (uint32_t n = from; n < to; ++n) {
      worker_->Put(n, 0);
      ASSERT_TRUE(Until([&] { return worker_->puts.contains(n); }));
      ASSERT_TRUE(worker_->puts[n].ok()) << worker_->puts[n].ToString();
    }
  }
  const peer::LoadDone& Load(uint64_t tag, std::vector<kv::BlockKey> keys) {
    worker_->Send(peer::LoadBlocks{.tag = tag, .keys = std::move(keys)});
    EXPECT_TRUE(Until([&] { return worker_->loads.contains(tag); }));
    return worker_->loads[tag];
  }
  // Pulls one loaded block as a worker would.
  Status Pull(const peer::LoadedBlock& block, std::span<std::byte> into) {
    auto link = worker_->transport().Connect(worker_->welcome->memory.transport_address);
    auto region = (*link)->Import(worker_->welcome->memory.region_descriptor);
    std::optional<Status> done;
    (*link)->Get(*region, block.offset, into, [&](Status status) { done = std::move(status); });
    EXPECT_TRUE(Until([&] { return done.has_value(); }));
    return *done;
  }
  void ExpectNothingHeld() {
    EXPECT_EQ(store_->gauge("leases"), 0);
    EXPECT_EQ(store_->gauge("pinned_buffers"), 0);
    EXPECT_EQ(store_->gauge("puts_in_flight"), 0);
  }

  Cluster cluster_;
  std::unique_ptr<store::Tier> memory_;
  store::TierFaults faults_;
  store::FaultTier tier_;
  std::unique_ptr<StoreProcess> store_;
  std::unique_ptr<ScriptedWorker> worker_;
};

TEST_P(StoreRuntimeTest, WelcomesAndGaugesExistAtZero) {
  Start();
  EXPECT_EQ(worker_->welcome->incarnation, 77u);
  EXPECT_EQ(worker_->welcome->max_load_blocks, 4u);
  EXPECT_EQ(store_->gauge("open_links"), 1);
  ExpectNothingHeld();
  cluster_.time.Advance(Seconds(3));
  EXPECT_FALSE(worker_->closed.has_value());
  EXPECT_GE(worker_->heartbeats, 10u);
}

TEST_P(StoreRuntimeTest, PutThenLookupThenLoadGivesTheSameBytes) {
  Start();
  PutBlocks(0, 6);
  worker_->Send(peer::LookupBlocks{.tag = 1, .keys = TestKeys(0, 9)});
  ASSERT_TRUE(Until([&] { return worker_->lookups.contains(1); }));
  EXPECT_EQ(worker_->lookups[1], 6u);
  EXPECT_EQ(store_->counter("hits_total"), 6);
  EXPECT_EQ(store_->counter("misses_total"), 3);
  const auto& load = Load(2, TestKeys(2, 9));
  ASSERT_EQ(load.blocks.size(), 4u);  // at most max_load_blocks
  EXPECT_NE(load.lease, 0u);
  EXPECT_EQ(store_->gauge("leases"), 1);
  EXPECT_EQ(store_->gauge("pinned_buffers"), 4);
  for (uint32_t i = 0; i < 4; ++i) {
    std::vector<std::byte> into(kBlockBytes);
    ASSERT_TRUE(Pull(load.blocks[i], into).ok());
    EXPECT_TRUE(IsBlock(into, 2 + i));
    EXPECT_EQ(load.blocks[i].crc32c, BlockCrc(into));
  }
  worker_->Send(peer::ReleaseLease{.lease = load.lease});
  cluster_.time.Advance(Milliseconds(1));
  ExpectNothingHeld();
}

TEST_P(StoreRuntimeTest, UnknownBlocksLoadNothing) {
  Start();
  const auto& load = Load(1, TestKeys(0, 3));
  EXPECT_EQ(load.lease, 0u);
  EXPECT_TRUE(load.blocks.empty());
  ExpectNothingHeld();
}

TEST_P(StoreRuntimeTest, PuttingABlockAgainReadsNothing) {
  Start();
  PutBlocks(0, 1);
  const uint64_t gets = cluster_.fabric.gets();
  worker_->puts.clear();
  PutBlocks(0, 1);
  EXPECT_EQ(cluster_.fabric.gets(), gets);
  EXPECT_EQ(store_->counter("put_duplicates_total"), 1);
}

TEST_P(StoreRuntimeTest, BlockCorruptedOnItsWayIsRefusedAndNotKept) {
  Start();
  cluster_.fabric.CorruptNext(1);
  worker_->Put(1, 0);
  ASSERT_TRUE(Until([&] { return worker_->puts.contains(1); }));
  EXPECT_EQ(worker_->puts[1].reason(), Reason::kKvCorrupt);
  EXPECT_EQ(store_->counter("corrupt_blocks_total", {{"where", "transfer"}}), 1);
  const kv::BlockKey key = TestKey(1);
  EXPECT_EQ(tier_.ContainsPrefix({&key, 1}), 0u);
  worker_->puts.clear();
  PutBlocks(1, 2);
}

TEST_P(StoreRuntimeTest, DiskFullRefusesPutsAndReadsGoOn) {
  Start();
  PutBlocks(0, 2);
  faults_.writable_bytes = 0;
  worker_->Put(2, 0);
  ASSERT_TRUE(Until([&] { return worker_->puts.contains(2); }));
  EXPECT_EQ(worker_->puts[2].reason(), Reason::kNoSpace);
  EXPECT_EQ(store_->counter("put_refused_total", {{"reason", "no_space"}}), 1);
  EXPECT_EQ(Load(1, TestKeys(0, 2)).blocks.size(), 2u);
  faults_.writable_bytes = -1;
  worker_->puts.clear();
  PutBlocks(2, 3);
}

TEST_P(StoreRuntimeTest, BlockThatCannotBeReadEndsThePrefix) {
  Start();
  PutBlocks(0, 3);
  faults_.read_fails = true;
  const auto& load = Load(1, TestKeys(0, 3));
  EXPECT_TRUE(load.blocks.empty());
  EXPECT_EQ(load.lease, 0u);
  ExpectNothingHeld();
}

TEST_P(StoreRuntimeTest, LoadsShareTheBuffersThereAre) {
  StoreRuntimeOptions options = SmallStore();
  options.read_bytes = 6 * kBlockBytes;
  options.max_load_blocks = 4;
  Start(options);
  PutBlocks(0, 4);
  const uint32_t most = worker_->welcome->max_load_blocks;
  EXPECT_EQ(most, 3u);
  EXPECT_EQ(Load(1, TestKeys(0, 4)).blocks.size(), 4u);
  EXPECT_EQ(Load(2, TestKeys(0, 4)).blocks.size(), 2u);
  EXPECT_EQ(Load(3, TestKeys(0, 4)).blocks.size(), 0u);
  worker_->Send(peer::ReleaseLease{.lease = worker_->loads[1].lease});
  EXPECT_EQ(Load(4, TestKeys(0, 4)).blocks.size(), 4u);
}

TEST_P(StoreRuntimeTest, LeaseThatIsNotReleasedExpires) {
  Start();
  PutBlocks(0, 2);
  EXPECT_EQ(Load(1, TestKeys(0, 2)).blocks.size(), 2u);
  cluster_.time.Advance(Seconds(29));
  EXPECT_EQ(store_->gauge("leases"), 1);
  cluster_.time.Advance(Seconds(2));
  EXPECT_EQ(store_->gauge("leases"), 0);
  EXPECT_EQ(store_->counter("leases_expired_total"), 1);
  ExpectNothingHeld();
  worker_->Send(peer::ReleaseLease{.lease = worker_->loads[1].lease});  // too late: no harm
  cluster_.time.Advance(Seconds(1));
  EXPECT_FALSE(worker_->closed.has_value());
}

TEST_P(StoreRuntimeTest, LeaseOfAnotherWorkerCannotBeReleased) {
  Start();
  PutBlocks(0, 2);
  const uint64_t lease = Load(1, TestKeys(0, 2)).lease;
  ScriptedWorker other(cluster_, "other");
  other.Connect(other.Hello());
  ASSERT_TRUE(Until([&] { return other.welcome.has_value(); }));
  other.Send(peer::ReleaseLease{.lease = lease});
  cluster_.time.Advance(Milliseconds(100));
  EXPECT_EQ(store_->gauge("leases"), 1);
}

TEST_P(StoreRuntimeTest, WorkerThatDiesInTheMiddleOfAPutLeavesNothingBehind) {
  Start();
  PutBlocks(0, 1);
  EXPECT_EQ(Load(1, TestKeys(0, 1)).blocks.size(), 1u);
  cluster_.fabric.Hold("worker");
  for (uint32_t n = 1; n < 5; ++n) worker_->Put(n, n);
  ASSERT_TRUE(Until([&] { return store_->gauge("puts_in_flight") == 4; }));
  cluster_.network.Kill("worker");
  ASSERT_TRUE(Until([&] { return store_->gauge("open_links") == 0; }));
  ExpectNothingHeld();
  EXPECT_EQ(store_->runtime().sessions(), 0u);
  EXPECT_EQ(cluster_.fabric.links(), 0u);
}

TEST_P(StoreRuntimeTest, StalledWorkerLosesItsLinkAndStagingIsReusedOnlyAfterThat) {
  StoreRuntimeOptions options = SmallStore();
  options.staging_bytes = 2 * kBlockBytes;
  options.pull_deadline = Seconds(20);
  Start(options);
  cluster_.fabric.Hold("worker");
  worker_->Put(1, 1);
  worker_->Put(2, 2);
  ASSERT_TRUE(Until([&] { return store_->gauge("puts_in_flight") == 2; }));
  ScriptedWorker other(cluster_, "other");
  other.Connect(other.Hello());
  other.Put(3, 0);
  ASSERT_TRUE(Until([&] { return other.puts.contains(3); }));
  EXPECT_EQ(other.puts[3].reason(), Reason::kOverloaded);
  worker_->Silence();
  ASSERT_TRUE(Until([&] { return store_->gauge("puts_in_flight") == 0; }, Seconds(4)));
  ASSERT_TRUE(Until([&] { return worker_->closed.has_value(); }));
  EXPECT_EQ(worker_->closed->reason(), Reason::kPeerLost);
  other.Put(4, 0);
  ASSERT_TRUE(Until([&] { return other.puts.contains(4); }));
  EXPECT_TRUE(other.puts[4].ok());
  cluster_.fabric.Release("worker");  // resumed: its late bytes go nowhere
  cluster_.time.Advance(Seconds(1));
  std::vector<std::byte> into(kBlockBytes);
  ASSERT_TRUE(tier_.Get(TestKey(4), into).ok());
  EXPECT_TRUE(IsBlock(into, 4));
}

TEST_P(StoreRuntimeTest, BlockThatDoesNotArriveEndsTheSessionAtItsDeadline) {
  Start();
  cluster_.fabric.Hold("worker");
  worker_->Put(1, 1);
  ASSERT_TRUE(Until([&] { return worker_->closed.has_value(); }, Seconds(3)));
  EXPECT_EQ(worker_->closed->reason(), Reason::kDeadline);
  ASSERT_TRUE(Until([&] { return store_->gauge("open_links") == 0; }));
  ExpectNothingHeld();
}

TEST_P(StoreRuntimeTest, WorkerThatDiesWhileItsBlockIsWrittenStillHasItWritten) {
  Start();
  store_->writer().set_stopped(true);
  worker_->Put(1, 1);
  ASSERT_TRUE(Until([&] { return store_->gauge("puts_in_flight") == 1 && cluster_.fabric.pending() == 0; }));
  cluster_.time.Advance(Milliseconds(10));
  worker_->Leave();
  ASSERT_TRUE(Until([&] { return store_->gauge("open_links") == 0; }));
  EXPECT_EQ(store_->gauge("puts_in_flight"), 1);
  store_->writer().set_stopped(false);
  ASSERT_TRUE(Until([&] { return store_->gauge("puts_in_flight") == 0; }));
  const kv::BlockKey key = TestKey(1);
  EXPECT_EQ(tier_.ContainsPrefix({&key, 1}), 1u);
}

TEST_P(StoreRuntimeTest, WorkerThatLeavesDuringItsReadFreesTheBuffers) {
  Start();
  PutBlocks(0, 2);
  store_->reader().set_stopped(true);
  worker_->Send(peer::LoadBlocks{.tag = 1, .keys = TestKeys(0, 2)});
  ASSERT_TRUE(Until([&] { return store_->gauge("pinned_buffers") == 2; }));
  worker_->Leave();
  ASSERT_TRUE(Until([&] { return store_->runtime().sessions() == 0; }));
  store_->reader().set_stopped(false);
  ASSERT_TRUE(Until([&] { return store_->gauge("pinned_buffers") == 0; }));
  ExpectNothingHeld();
}

TEST_P(StoreRuntimeTest, TooManyPutsAreRefusedAsOverload) {
  Start();
  cluster_.fabric.Hold("worker");
  for (uint32_t n = 0; n < 10; ++n) worker_->Put(n, n);
  ASSERT_TRUE(Until([&] { return worker_->puts.size() == 2; }));
  for (const auto& [tag, status] : worker_->puts) EXPECT_EQ(status.reason(), Reason::kOverloaded);
  cluster_.fabric.Release("worker");
  ASSERT_TRUE(Until([&] { return worker_->puts.size() == 10; }));
  EXPECT_EQ(store_->counter("put_blocks_total"), 8);
  EXPECT_EQ(store_->counter("put_refused_total", {{"reason", "overloaded"}}), 2);
  ExpectNothingHeld();
}

TEST_P(StoreRuntimeTest, DrainFinishesPutsUnderWayRefusesNewOnesAndStillReads) {
  Start();
  PutBlocks(0, 1);
  cluster_.fabric.Hold("worker");
  worker_->Put(1, 1);
  ASSERT_TRUE(Until([&] { return store_->gauge("puts_in_flight") == 1; }));
  bool drained = false;
  store_->runtime().Drain([&] { drained = true; });
  worker_->Put(2, 2);
  ASSERT_TRUE(Until([&] { return worker_->puts.contains(2); }));
  EXPECT_EQ(worker_->puts[2].reason(), Reason::kDraining);
  EXPECT_FALSE(drained);
  EXPECT_EQ(Load(7, TestKeys(0, 1)).blocks.size(), 1u);
  cluster_.fabric.Release("worker");
  ASSERT_TRUE(Until([&] { return drained; }));
  EXPECT_TRUE(worker_->puts[1].ok());
}

TEST_P(StoreRuntimeTest, NonsenseFromAWorkerEndsItsStreamOnly) {
  Start();
  PutBlocks(0, 1);
  const auto refused = [&](const std::string& name, const std::function<void(ScriptedWorker&)>& act, Code code) {
    ScriptedWorker bad(cluster_, name);
    act(bad);
    EXPECT_TRUE(Until([&] { return bad.closed.has_value(); })) << name;
    EXPECT_EQ(bad.closed.value_or(OkStatus()).code(), code) << name << ": " << bad.closed->ToString();
    bad.Leave();
    cluster_.time.Advance(Milliseconds(1));
  };
  const auto with = [](peer::StoreHello hello, auto change) {
    change(hello);
    return hello;
  };
  refused(
      "zero", [&](auto& w) { w.Connect(with(w.Hello(), [](auto& h) { h.block_bytes = 0; })); }, Code::kInvalidArgument);
  refused(
      "huge", [&](auto& w) { w.Connect(with(w.Hello(), [](auto& h) { h.block_bytes = 1ull << 60; })); },
      Code::kInvalidArgument);
  refused(
      "shape", [&](auto& w) { w.Connect(with(w.Hello(), [](auto& h) { h.block_bytes = 4096; })); },
      Code::kFailedPrecondition);
  refused(
      "region", [&](auto& w) { w.Connect(with(w.Hello(), [](auto& h) { h.memory.region_descriptor = "x"; })); },
      Code::kInvalidArgument);
  refused(
      "address", [&](auto& w) { w.Connect(with(w.Hello(), [](auto& h) { h.memory.transport_address = ""; })); },
      Code::kInvalidArgument);
  refused(
      "twice",
      [&](auto& w) {
        w.Connect(w.Hello());
        w.Send(w.Hello());
      },
      Code::kInvalidArgument);
  worker_->Send(peer::PutBlock{.tag = 9, .key = TestKey(9), .offset = 1ull << 50, .crc32c = 1});
  ASSERT_TRUE(Until([&] { return worker_->puts.contains(9); }));
  EXPECT_EQ(worker_->puts[9].code(), Code::kOutOfRange);
  EXPECT_EQ(Load(3, TestKeys(0, 1)).blocks.size(), 1u);
  EXPECT_FALSE(worker_->closed.has_value());
}

INSTANTIATE_TEST_SUITE_P(Seeds, StoreRuntimeTest, testing::Range<uint64_t>(1, 6));

}  // namespace
}  // namespace millrace::runtime
