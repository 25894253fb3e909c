#include "services/cli/state_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace millrace::cli {
namespace {

using testing::HasSubstr;

class StateFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "state_folder_" + std::to_string(getpid());
    setenv("XDG_STATE_HOME", root_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  StateFolder Make() {
    auto folder = StateFolder::Locate("test");
    EXPECT_TRUE(folder.ok());
    EXPECT_TRUE(folder->Create().ok());
    return *folder;
  }
  std::string root_;
};

TEST_F(StateFolderTest, TheRecordComesBackAsItWasWritten) {
  const StateFolder folder = Make();
  EXPECT_EQ(folder.Read().status().code(), Code::kNotFound);
  const ClusterRecord record{
      {11, 22, "boot"}, "http://h:1", "127.0.0.1", "/m", {{"prefill-0", "prefill", {5, 6, "b"}, 3}}};
  ASSERT_TRUE(folder.Write(record).ok());
  const auto read = folder.Read();
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->supervisor, record.supervisor);
  EXPECT_EQ(read->endpoint, "http://h:1");
  ASSERT_EQ(read->processes.size(), 1u);
  EXPECT_EQ(read->processes[0].process, (ProcessIdentity{5, 6, "b"}));
  EXPECT_EQ(read->processes[0].restarts, 3u);
  folder.Forget();
  EXPECT_EQ(folder.Read().status().code(), Code::kNotFound);
}

TEST_F(StateFolderTest, DamagedRecordsAreErrorsNotCrashes) {
  for (const char* text :
       {"", "{", "[]", "null", "{\"supervisor\": 3}", "{\"supervisor\":{\"pid\":\"x\"},\"processes\":{}}",
        "{\"supervisor\":{},\"processes\":[1,{\"process\":[]},{\"process\":{\"pid\":1e99}}]}"}) {
    const auto record = ParseClusterRecord(text);
    if (record.ok()) {
      EXPECT_EQ(record->supervisor.pid, 0) << text;
    }
    (void)ParseReadyRecord(text);
  }
}

TEST_F(StateFolderTest, OnlyOneSupervisorHoldsTheLock) {
  const StateFolder folder = Make();
  {
    const auto lock = folder.Lock();
    ASSERT_TRUE(lock.ok());
    const auto second = folder.Lock();
    EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
    EXPECT_THAT(second.status().message(), HasSubstr("millrace down"));
  }
  EXPECT_TRUE(folder.Lock().ok());
}

TEST_F(StateFolderTest, LeftoversOfACrashedRunAreKilledAndStrangersAreNot) {
  const StateFolder folder = Make();
  const auto start_child = [] {
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) pause();
    }
    return pid;
  };
  const pid_t mine = start_child();
  const pid_t stranger = start_child();
  ClusterRecord record;
  record.processes.push_back({"a", "prefill", *IdentifyProcess(mine), 0});
  ProcessIdentity recycled = *IdentifyProcess(stranger);
  recycled.start_ticks -= 1;
  record.processes.push_back({"b", "decode", recycled, 0});
  ASSERT_TRUE(folder.Write(record).ok());
  EXPECT_EQ(folder.KillLeftovers(), 1);
  EXPECT_FALSE(IdentifyProcess(mine).ok());
  EXPECT_TRUE(IdentifyProcess(stranger).ok());
  kill(stranger, SIGKILL);
  waitpid(mine, nullptr, 0);
  waitpid(stranger, nullptr, 0);
}

TEST_F(StateFolderTest, NamesCannotLeaveTheFolder) {
  for (const char* name : {"", "..", "a/b", ".hidden", "a b"}) EXPECT_FALSE(StateFolder::Locate(name).ok()) << name;
}

TEST_F(StateFolderTest, LogsOfTheLastRunAreKeptApart) {
  const StateFolder folder = Make();
  std::ofstream(folder.log_path("gateway-0")) << "old\n";
  folder.RotateLogs();
  EXPECT_FALSE(std::filesystem::exists(folder.log_path("gateway-0")));
  EXPECT_TRUE(std::filesystem::exists(folder.log_path("gateway-0") + ".old"));
}

}  // namespace
}  // namespace millrace::cli
