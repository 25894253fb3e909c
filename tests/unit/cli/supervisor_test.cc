#include "services/cli/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace millrace::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;

class SupervisorTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "supervisor_" + std::to_string(getpid());
    std::filesystem::create_directories(root_ + "/bin");
    std::filesystem::create_directories(root_ + "/behave");
    setenv("XDG_STATE_HOME", root_.c_str(), 1);
    setenv("FAKE_SERVICE_FOLDER", (root_ + "/behave").c_str(), 1);
    config_.store = 1;
    config_.prefill = config_.decode = config_.balancers = 1;
    config_.drain_timeout = Seconds(1);
    config_.start_timeout = Seconds(60);
    config_.port = 0;
    const std::string fake = std::string(std::getenv("MILLRACE_BUILD_DIR")) + "/tests/fake_service";
    for (const ProcessPlan& plan : PlanProcesses(config_)) {
      std::error_code error;
      std::filesystem::create_symlink(fake, root_ + "/bin/" + plan.program, error);
    }
    ASSERT_TRUE(folder().Create().ok());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  StateFolder folder() { return *StateFolder::Locate("test"); }
  std::unique_ptr<Supervisor> Make() {
    return std::make_unique<Supervisor>(config_, folder(), root_ + "/bin",
                                        [this](const std::string& line, bool) { lines_.push_back(line); });
  }
  void Behave(const std::string& name, const std::string& word) { std::ofstream(root_ + "/behave/" + name) << word; }
  std::vector<ProcessIdentity> Processes() {
    std::vector<ProcessIdentity> processes;
    const auto record = folder().Read();
    if (record.ok()) {
      for (const ProcessRecord& process : record->processes) processes.push_back(process.process);
    }
    return processes;
  }
  // Runs the supervisor's loop until `done`, asked on another thread, then signals it to stop.
  void RunUntil(Supervisor& supervisor, const std::function<bool()>& done) {
    const pthread_t runner = pthread_self();
    std::thread asker([&] {
      const TimePoint deadline = SystemClock().Now() + Seconds(30);
      while (!done() && SystemClock().Now() < deadline) std::this_thread::yield();
      EXPECT_TRUE(done());
      pthread_kill(runner, SIGTERM);
    });
    supervisor.Run();
    asker.join();
  }

  std::string root_;
  UpConfig config_;
  std::vector<std::string> lines_;
};

TEST_F(SupervisorTest, StartsAllAndStopsAll) {
  const auto supervisor = Make();
  ASSERT_TRUE(supervisor->Start().ok());
  EXPECT_THAT(supervisor->endpoint(), HasSubstr("http://127.0.0.1:"));
  const auto processes = Processes();
  ASSERT_EQ(processes.size(), 6u);
  for (const ProcessIdentity& process : processes) EXPECT_TRUE(IsAlive(process));
  supervisor->Stop();
  for (const ProcessIdentity& process : processes) EXPECT_FALSE(IsAlive(process));
  EXPECT_EQ(folder().Read().status().code(), Code::kNotFound);
}

TEST_F(SupervisorTest, AKilledProcessComesBackOnItsPort) {
  const auto supervisor = Make();
  ASSERT_TRUE(supervisor->Start().ok());
  const auto before = folder().ReadReady("prefill-0");
  ASSERT_TRUE(before.ok());
  kill(before->pid, SIGKILL);
  RunUntil(*supervisor, [&] {
    const auto after = folder().ReadReady("prefill-0");
    return after.ok() && after->serving && after->pid != before->pid && after->admin_port == before->admin_port;
  });
  EXPECT_THAT(lines_, Contains(HasSubstr("prefill-0 was killed by signal 9")));
  supervisor->Stop();
}

TEST_F(SupervisorTest, AProcessThatCannotStartIsNamedWithTheEndOfItsLog) {
  Behave("decode-0", "fail");
  const auto supervisor = Make();
  const Status status = supervisor->Start();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("decode-0 does not start"));
  EXPECT_THAT(status.message(), HasSubstr("starting decode-0"));
  const auto processes = Processes();
  supervisor->Stop();
  for (const ProcessIdentity& process : processes) EXPECT_FALSE(IsAlive(process));
}

TEST_F(SupervisorTest, AWrongFlagOfAProcessIsReportedAtOnceNotAfterThreeStarts) {
  Behave("prefill-0", "usage");
  const auto supervisor = Make();
  const Status status = supervisor->Start();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("prefill-0 refuses its flags"));
  EXPECT_THAT(status.message(), HasSubstr("--kv-memory: 'zzz' is not a size"));
  EXPECT_EQ(std::count(lines_.begin(), lines_.end(), "prefill-0 exited with status 2"), 1);
  supervisor->Stop();
}

TEST_F(SupervisorTest, AProcessThatIgnoresSigtermIsKilled) {
  Behave("gateway-0", "deaf");
  config_.drain_timeout = Milliseconds(100);
  const auto supervisor = Make();
  ASSERT_TRUE(supervisor->Start().ok());
  const auto processes = Processes();
  supervisor->Stop();
  for (const ProcessIdentity& process : processes) EXPECT_FALSE(IsAlive(process));
}

TEST_F(SupervisorTest, AStoppedProcessDoesNotHoldUpTheEnd) {
  const auto supervisor = Make();
  ASSERT_TRUE(supervisor->Start().ok());
  const auto processes = Processes();
  kill(processes[0].pid, SIGSTOP);
  const TimePoint start = SystemClock().Now();
  supervisor->Stop();
  EXPECT_LT(SystemClock().Now() - start, Seconds(30));
  for (const ProcessIdentity& process : processes) EXPECT_FALSE(IsAlive(process));
}

}  // namespace
}  // namespace millrace::cli
