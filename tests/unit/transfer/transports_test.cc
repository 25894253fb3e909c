#include "common/transfer/transports/transports.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace millrace::transfer {
namespace {

TEST(Transports, NamesAreUniqueAndMake) {
  std::set<std::string_view> names;
  for (const TransportDescriptor* descriptor : All()) {
    EXPECT_TRUE(names.insert(descriptor->name).second) << descriptor->name;
    EXPECT_FALSE(descriptor->help.empty());
    EXPECT_FALSE(descriptor->variants.empty());
    auto transport = MakeTransport(descriptor->name, {});
    ASSERT_TRUE(transport.ok()) << transport.status().ToString();
    EXPECT_FALSE((*transport)->address().empty());
    EXPECT_LE((*transport)->address().size(), 4096u);
  }
}

// Leaves neither System V nor POSIX shared memory to this process; false when it may not.
bool TakeSharedMemoryAway() {
  if (unshare(CLONE_NEWIPC) != 0) return false;
  if (!(std::ofstream("/proc/sys/kernel/shmmax") << "4096" << std::flush)) return false;
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{64 << 10, 64 << 10};  // of files, which POSIX shared memory is made of
  return setrlimit(RLIMIT_FSIZE, &small) == 0;
}

TEST(Transports, MachineWithoutRoomForSharedMemoryGivesPrivateMemoryAndSaysSo) {
  if (std::ranges::none_of(All(), [](const auto* descriptor) { return descriptor->name == std::string("ucx"); })) {
    GTEST_SKIP() << "this build has no transport between processes";
  }
  const pid_t probe = fork();
  if (probe == 0) _exit(TakeSharedMemoryAway() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(probe, &status, 0), probe);
  if (status != 0) GTEST_SKIP() << "needs the right to make an IPC namespace";
  const auto allocate_and_use = [] {
    if (!TakeSharedMemoryAway()) _exit(1);
    const auto transport = MakeTransport("ucx", {.devices = "lo"});
    if (!transport.ok()) _exit(2);
    const auto memory = (*transport)->Allocate(1 << 20);
    if (!memory.ok()) _exit(3);
    std::ranges::fill((*memory)->bytes(), std::byte{1});
    _exit((*transport)->Register((*memory)->bytes()).ok() ? 0 : 1);
  };
  EXPECT_EXIT(allocate_and_use(), testing::ExitedWithCode(0), "transfer_without_shared_memory bytes=1048576.*/dev/shm");
}

TEST(Transports, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Status status = MakeTransport("pigeon", {}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  for (const TransportDescriptor* descriptor : All()) {
    EXPECT_NE(status.message().find(descriptor->name), std::string::npos);
  }
}

TEST(Transports, WrongOptionsAreRefusedWithTheOptionNamed) {
  for (const TransportDescriptor* descriptor : All()) {
    const Status lanes = MakeTransport(descriptor->name, {.lanes = "^tcp"}).status();
    EXPECT_EQ(lanes.code(), Code::kInvalidArgument) << descriptor->name;
    EXPECT_EQ(lanes.param(), "lanes");
    const Status pending = MakeTransport(descriptor->name, {.max_pending = 0}).status();
    EXPECT_EQ(pending.code(), Code::kInvalidArgument) << descriptor->name;
    EXPECT_EQ(pending.param(), "max_pending");
    const Status devices = MakeTransport(descriptor->name, {.devices = "no-such-device0"}).status();
    EXPECT_EQ(devices.code(), Code::kInvalidArgument) << descriptor->name << devices.ToString();
    EXPECT_EQ(devices.param(), "devices");
  }
}

TEST(Transports, LanesThatDoNotExistAreNotALostPeer) {
  for (const TransportDescriptor* descriptor : All()) {
    for (const bool local_only : {false, true}) {
      const Status lanes = MakeTransport(descriptor->name, {.lanes = "bogus", .local_only = local_only}).status();
      EXPECT_EQ(lanes.code(), Code::kInvalidArgument) << descriptor->name << ": " << lanes.ToString();
      EXPECT_EQ(lanes.param(), "lanes");
    }
  }
}

TEST(Transports, AProcessOnLoopbackChoosesNoDevicesForATransportWithoutAny) {
  for (const TransportDescriptor* descriptor : All()) {
    const auto transport = MakeTransport(descriptor->name, {.local_only = true});
    EXPECT_TRUE(transport.ok()) << descriptor->name << ": " << transport.status().ToString();
  }
}

}  // namespace
}  // namespace millrace::transfer
