#include "common/peer/liveness.h"

#include <gtest/gtest.h>

namespace millrace::peer {
namespace {

constexpr TimePoint kStart{Seconds(5)};

TEST(LivenessMonitorTest, SilenceIsDeathAtTheDeadlineAndAnyMessageResetsIt) {
  LivenessMonitor monitor({}, kStart);
  TimePoint now = kStart;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(monitor.Tick(now += Milliseconds(250)).ok());
  monitor.Heard();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(monitor.Tick(now += Milliseconds(250)).ok());
  EXPECT_EQ(monitor.Tick(now += Milliseconds(250)).reason(), Reason::kPeerLost);
}

TEST(LivenessMonitorTest, BusyWithoutProgressIsDeathAtTheProgressDeadline) {
  LivenessMonitor monitor({}, kStart);
  TimePoint now = kStart;
  for (int i = 0; i < 19; ++i) {
    monitor.Heard(Heartbeat{7, true});
    EXPECT_TRUE(monitor.Tick(now += Milliseconds(250)).ok()) << i;
  }
  monitor.Heard(Heartbeat{7, true});
  EXPECT_EQ(monitor.Tick(now += Milliseconds(250)).reason(), Reason::kPeerLost);
}

TEST(LivenessMonitorTest, WorkThatStartsAfterAPauseHasTheWholeDeadline) {
  LivenessMonitor monitor({}, kStart);
  TimePoint now = kStart;
  for (int i = 0; i < 100; ++i) {
    monitor.Heard(Heartbeat{7, false});
    EXPECT_TRUE(monitor.Tick(now += Milliseconds(250)).ok());
  }
  for (int i = 0; i < 15; ++i) {
    monitor.Heard(Heartbeat{7, true});
    EXPECT_TRUE(monitor.Tick(now += Milliseconds(250)).ok());
  }
  monitor.Heard(Heartbeat{8, true});
  for (int i = 0; i < 15; ++i) {
    monitor.Heard(Heartbeat{8, true});
    EXPECT_TRUE(monitor.Tick(now += Milliseconds(250)).ok());
  }
}

TEST(LivenessMonitorTest, PauseOfThisProcessIsNotSilenceOfThePeer) {
  LivenessMonitor monitor({}, kStart);
  EXPECT_TRUE(monitor.Tick(kStart + Seconds(60)).ok());
  monitor.Heard(Heartbeat{});
  EXPECT_TRUE(monitor.Tick(kStart + Seconds(61)).ok());
}

}  // namespace
}  // namespace millrace::peer
