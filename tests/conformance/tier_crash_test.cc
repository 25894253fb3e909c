// A store process that is killed at any moment: what was acknowledged is there, and nothing is wrong.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>

#include "common/store/rocksdb/rocksdb_tier.h"
#include "tests/conformance/tier_fixture.h"

namespace millrace::store {
namespace {

constexpr const char* kPathVariable = "MILLRACE_TIER_CRASH_PATH";
constexpr const char* kFirstVariable = "MILLRACE_TIER_CRASH_FIRST";
constexpr const char* kAcknowledgeVariable = "MILLRACE_TIER_CRASH_FD";
constexpr size_t kBlockBytes = 30000;
constexpr uint64_t kCapacity = 10 << 20;  // less than all rounds write: some are killed while they reclaim

TierOptions CrashOptions(const std::string& path) {
  return {.path = path, .capacity_bytes = kCapacity, .retention = {.guaranteed_seconds = 0}, .unix_seconds = [] {
            return int64_t{1'700'000'000};
          }};
}

// The body of the process that is killed: puts blocks in batches and writes each acknowledged number to a pipe.
TEST(TierCrashChild, DISABLED_PutsUntilKilled) {
  const char* path = getenv(kPathVariable);
  ASSERT_NE(path, nullptr);
  const int acknowledge = atoi(getenv(kAcknowledgeVariable));
  auto tier = OpenRocksdbTier(CrashOptions(path));
  ASSERT_TRUE(tier.ok()) << tier.status().ToString();
  for (uint64_t n = strtoull(getenv(kFirstVariable), nullptr, 10);; n += 3) {
    const TestBlock blocks[] = {TestBlock(n, kBlockBytes), TestBlock(n + 1, kBlockBytes),
                                TestBlock(n + 2, kBlockBytes)};
    const TierPut batch[] = {blocks[0].put(), blocks[1].put(), blocks[2].put()};
    for (const auto& status : (*tier)->Put(batch)) ASSERT_TRUE(status.ok()) << status.ToString();
    const uint64_t numbers[] = {n, n + 1, n + 2};
    ASSERT_EQ(write(acknowledge, numbers, sizeof(numbers)), static_cast<ssize_t>(sizeof(numbers)));
  }
}

class Child {
 public:
  Child(const std::string& path, uint64_t first) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const std::string fd = std::to_string(ends[1]), from = std::to_string(first);
    pid_ = fork();
    if (pid_ == 0) {
      setenv(kPathVariable, path.c_str(), 1);
      setenv(kFirstVariable, from.c_str(), 1);
      setenv(kAcknowledgeVariable, fd.c_str(), 1);
      unsetenv("GTEST_SHUFFLE");
      execl("/proc/self/exe", "tier_crash_child", "--gtest_filter=TierCrashChild.*", "--gtest_also_run_disabled_tests",
            "--gtest_brief=1", nullptr);
      _exit(127);
    }
    close(ends[1]);
    acknowledged_ = ends[0];
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(acknowledged_);
  }
  // The next acknowledged number; false when the child is gone.
  bool Next(uint64_t& number) {
    pollfd ready{acknowledged_, POLLIN, 0};
    if (poll(&ready, 1, 30000) != 1) return false;
    return read(acknowledged_, &number, sizeof(number)) == sizeof(number);
  }
  void Kill() { kill(pid_, SIGKILL); }

 private:
  pid_t pid_ = -1;
  int acknowledged_ = -1;
};

TEST(TierCrash, EveryAcknowledgedBlockSurvivesKillNineAndNoneIsWrong) {
  TemporaryFolder folder;
  Rng rng(11);
  uint64_t next = 0;
  for (int round = 0; round < 12; ++round) {
    uint64_t last = next, number = 0, seen = 0;
    {
      Child child(folder.path(), next);
      const uint64_t wanted = 1 + rng.Below(60);
      while (seen < wanted && child.Next(number)) {
        ++seen;
        last = number;
      }
      ASSERT_EQ(seen, wanted) << "the child ended by itself";
      child.Kill();
      while (child.Next(number)) last = number;
    }
    auto tier = OpenRocksdbTier(CrashOptions(folder.path()));
    ASSERT_TRUE(tier.ok()) << tier.status().ToString();
    for (uint64_t n = next; n <= last; ++n) {
      const Status status = CheckBlock(**tier, TestBlock(n, kBlockBytes));
      ASSERT_TRUE(status.ok()) << "round " << round << " block " << n << ": " << status.ToString();
    }
    for (uint64_t n = 0; n < last + 10; ++n) {
      const Status status = CheckBlock(**tier, TestBlock(n, kBlockBytes));
      ASSERT_TRUE(status.ok() || status.code() == Code::kNotFound) << n << ": " << status.ToString();
    }
    EXPECT_EQ((*tier)->Stats().corrupt, 0u);
    EXPECT_LE((*tier)->Stats().used_bytes, kCapacity);
    next = last + 1;
  }
}

}  // namespace
}  // namespace millrace::store
