#include "services/cli/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace millrace::cli {
namespace {

// A child that does nothing until it is signalled.
pid_t StartChild() {
  const pid_t pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  return pid;
}

TEST(ProcessIdentityTest, NamesALivingProcessAndSignalsIt) {
  const pid_t pid = StartChild();
  const auto identity = IdentifyProcess(pid);
  ASSERT_TRUE(identity.ok());
  EXPECT_TRUE(IsAlive(*identity));
  EXPECT_FALSE(WaitForEnd(*identity, Duration(0)));
  EXPECT_TRUE(SignalProcess(*identity, SIGKILL).ok());
  EXPECT_TRUE(WaitForEnd(*identity, Seconds(10)));
  EXPECT_FALSE(IsAlive(*identity)) << "a zombie has ended";
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(SignalProcess(*identity, SIGKILL).code(), Code::kNotFound);
}

TEST(ProcessIdentityTest, ARecycledPidIsNeverSignalled) {
  const pid_t pid = StartChild();
  const auto identity = IdentifyProcess(pid);
  ASSERT_TRUE(identity.ok());
  ProcessIdentity earlier = *identity;
  earlier.start_ticks -= 1;  // who had this pid before
  EXPECT_FALSE(IsAlive(earlier));
  EXPECT_EQ(SignalProcess(earlier, SIGKILL).code(), Code::kNotFound);
  ProcessIdentity other_boot = *identity;
  other_boot.boot_id = "another";
  EXPECT_EQ(SignalProcess(other_boot, SIGKILL).code(), Code::kNotFound);
  EXPECT_TRUE(IsAlive(*identity));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(ProcessIdentityTest, ThereIsNoProcessZero) {
  EXPECT_FALSE(IdentifyProcess(0).ok());
  EXPECT_FALSE(IsAlive({}));
  EXPECT_EQ(SignalProcess({}, SIGTERM).code(), Code::kNotFound);
}

}  // namespace
}  // namespace millrace::cli
