// The real store process over gRPC and UCX: put, lookup, load; kill -9 and restart; SIGSTOP and SIGCONT.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <system_error>
#include <thread>

#include "common/base/event_loop.h"
#include "common/rpc/dialer.h"
#include "common/runtime/store_client.h"
#include "common/transfer/transports/transports.h"
#include "tests/component/store_blocks.h"

namespace millrace::runtime {
namespace {

constexpr uint64_t kRealBlockBytes = 1474560;
constexpr uint32_t kPages = 48;

// A store process on a folder of its own.
class StoreChild {
 public:
  StoreChild(const std::string& folder, uint16_t port) : folder_(folder) {
    const std::string binary = std::string(std::getenv("MILLRACE_BUILD_DIR")) + "/bin/millrace-kvcache-store";
    const std::string ready = folder + "/ready.json";
    std::error_code ignored;
    std::filesystem::remove(ready, ignored);
    const std::string path = folder + "/store", number = std::to_string(port);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl(binary.c_str(), binary.c_str(), "--path", path.c_str(), "--capacity", "256MiB", "--min-free", "0", "--port",
            number.c_str(), "--ready-file", ready.c_str(), "--read-memory", "64MiB", "--staging-memory", "32MiB",
            nullptr);
      _exit(127);
    }
    port_ = WaitForPort(ready);
  }
  ~StoreChild() {
    if (pid_ < 0) return;
    kill(pid_, SIGCONT);
    Kill();
  }
  void Signal(int number) { kill(pid_, number); }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int Terminate() {
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  uint16_t port() const { return port_; }

 private:
  static uint16_t WaitForPort(const std::string& ready) {
    for (int i = 0; i < 3000; ++i) {
      std::ifstream file(ready);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      const std::string field = "\"grpc_port\":";
      const size_t at = text.find(field);
      if (at != std::string::npos) return static_cast<uint16_t>(std::atoi(text.c_str() + at + field.size()));
      poll(nullptr, 0, 10);
    }
    ADD_FAILURE() << "the store did not start";
    return 0;
  }

  const std::string folder_;
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

class StoreProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace_store_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    store_ = std::make_unique<StoreChild>(folder_, 0);
    transport_ = *transfer::MakeTransport("ucx", {});
    memory_ = *transport_->Allocate(kPages * kRealBlockBytes);
    region_ = *transport_->Register(memory_->bytes());
    metrics_ = MakeMemoryMetrics();
    control_ = std::make_unique<EventLoop>("control");
    blocking_ = std::make_unique<EventLoop>("blocking");
    dialer_ = rpc::MakeDialer<peer::StoreProtocol>(*control_);
    addresses_ = std::make_unique<peer::StaticAddresses>(
        std::vector<std::string>{"127.0.0.1:" + std::to_string(store_->port())});
    client_ = std::make_unique<StoreClient>(
        StoreClientWiring{*control_, *blocking_, *dialer_, *addresses_, *transport_, *metrics_},
        StoreClientOptions{.incarnation = 3,
                           .layout_digest = "layout",
                           .block_bytes = kRealBlockBytes,
                           .kv_memory = memory_->bytes(),
                           .memory = {transport_->address(), region_->descriptor()}});
    ASSERT_TRUE(Connected(1));
  }
  void TearDown() override {
    if (control_ != nullptr) control_->Stop();
    if (blocking_ != nullptr) blocking_->Stop();
    client_ = nullptr;
    dialer_ = nullptr;
    region_ = nullptr;
    memory_ = nullptr;
    transport_ = nullptr;
    store_ = nullptr;
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  bool Connected(uint32_t wanted) {
    for (int i = 0; i < 1500; ++i) {
      std::promise<uint32_t> connected;
      control_->Post([&] { connected.set_value(client_->connected()); });
      if (connected.get_future().get() == wanted) return true;
      poll(nullptr, 0, 10);
    }
    return false;
  }
  TimePoint In(Duration time) const { return SystemClock().Now() + time; }
  std::span<std::byte> Page(uint32_t page) { return memory_->bytes().subspan(page * kRealBlockBytes, kRealBlockBytes); }

  // Runs one call on the control loop and waits for its answer.
  template <class T>
  T Call(const std::function<void(std::function<void(T)>)>& begin) {
    auto answer = std::make_shared<std::promise<T>>();
    auto future = answer->get_future();
    control_->Post([&] { begin([answer](T value) { answer->set_value(std::move(value)); }); });
    if (future.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
      ADD_FAILURE() << "a call never ended";
      std::abort();
    }
    return future.get();
  }
  Status Put(uint32_t n, uint32_t page, Duration within = Seconds(20)) {
    FillBlock(Page(page), n);
    return Call<Status>([&](auto done) {
      client_->Put({.chain = TestKey(0),
                    .key = TestKey(n),
                    .block = page,
                    .crc32c = BlockCrc(Page(page)),
                    .deadline = In(within)},
                   std::move(done));
    });
  }
  uint32_t Lookup(uint32_t to, Duration within = Seconds(20)) {
    return Call<uint32_t>([&](auto done) {
      client_->Lookup({.chain = TestKey(0), .keys = TestKeys(0, to), .deadline = In(within)}, std::move(done));
    });
  }
  uint32_t Load(uint32_t to, uint32_t first_page, Duration within = Seconds(20)) {
    std::vector<kv::BlockIndex> pages;
    for (uint32_t n = 0; n < to; ++n) pages.push_back(first_page + n);
    return Call<uint32_t>([&](auto done) {
      client_->LoadInto({.chain = TestKey(0), .keys = TestKeys(0, to), .blocks = pages, .deadline = In(within)},
                        std::move(done));
    });
  }
  void PutBlocks(uint32_t from, uint32_t to) {
    for (uint32_t n = from; n < to; ++n) {
      const Status status = Put(n, 0);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  void ExpectBlocks(uint32_t count, uint32_t first_page) {
    for (uint32_t n = 0; n < count; ++n) EXPECT_TRUE(IsBlock(Page(first_page + n), n)) << n;
  }

  std::string folder_;
  std::unique_ptr<StoreChild> store_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<transfer::Memory> memory_;
  std::unique_ptr<transfer::Region> region_;
  std::unique_ptr<MetricRegistry> metrics_;
  std::unique_ptr<EventLoop> control_;
  std::unique_ptr<EventLoop> blocking_;
  std::unique_ptr<peer::Dialer<peer::StoreProtocol>> dialer_;
  std::unique_ptr<peer::AddressSource> addresses_;
  std::unique_ptr<StoreClient> client_;
};

TEST_F(StoreProcessTest, BlocksComeBackAlsoAfterKillNineAndAfterADrainedStop) {
  PutBlocks(0, 20);
  EXPECT_EQ(Lookup(30), 20u);
  EXPECT_EQ(Load(20, 1), 20u);
  ExpectBlocks(20, 1);
  const uint16_t port = store_->port();
  store_->Kill();
  ASSERT_TRUE(Connected(0));
  EXPECT_EQ(Lookup(30), 0u);
  EXPECT_EQ(Put(90, 0).reason(), Reason::kPeerLost);
  store_ = std::make_unique<StoreChild>(folder_, port);
  ASSERT_TRUE(Connected(1));
  EXPECT_EQ(Load(20, 24), 20u);
  ExpectBlocks(20, 24);
  EXPECT_EQ(store_->Terminate(), 0);
  ASSERT_TRUE(Connected(0));
  store_ = std::make_unique<StoreChild>(folder_, port);
  ASSERT_TRUE(Connected(1));
  EXPECT_EQ(Lookup(30), 20u);
}

TEST_F(StoreProcessTest, StoppedStoreCostsAMissInTimeAndResumedHarmsNothing) {
  PutBlocks(0, 16);
  store_->Signal(SIGSTOP);
  const TimePoint begun = SystemClock().Now();
  EXPECT_EQ(Load(16, 1, Milliseconds(300)), 0u);
  EXPECT_EQ(Lookup(16, Milliseconds(300)), 0u);
  EXPECT_FALSE(Put(50, 40, Milliseconds(300)).ok());
  EXPECT_LT(SystemClock().Now() - begun, Seconds(5));
  ASSERT_TRUE(Connected(0));
  for (uint32_t page = 1; page < 17; ++page) FillBlock(Page(page), 1000 + page);
  store_->Signal(SIGCONT);
  ASSERT_TRUE(Connected(1));
  for (uint32_t page = 1; page < 17; ++page) EXPECT_TRUE(IsBlock(Page(page), 1000 + page));
  EXPECT_EQ(Load(16, 20), 16u);
  ExpectBlocks(16, 20);
}

// Loads run while the store is killed at some moment: each ends, and what it reports is right.
TEST_F(StoreProcessTest, StoreKilledInTheMiddleOfLoads) {
  PutBlocks(0, 16);
  const uint16_t port = store_->port();
  Rng rng(5);
  for (int round = 0; round < 4; ++round) {
    std::promise<void> begun;
    std::thread killer([&, after = static_cast<int>(rng.Below(12))] {
      begun.get_future().wait();
      poll(nullptr, 0, after);
      store_->Kill();
    });
    begun.set_value();
    const uint32_t loaded = Load(16, 20);
    ExpectBlocks(loaded, 20);
    killer.join();
    ASSERT_TRUE(Connected(0));
    store_ = std::make_unique<StoreChild>(folder_, port);
    ASSERT_TRUE(Connected(1));
    EXPECT_EQ(Load(16, 20), 16u);
    ExpectBlocks(16, 20);
  }
}

}  // namespace
}  // namespace millrace::runtime
