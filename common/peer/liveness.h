#pragma once
// Decides whether the peer at the other end of one stream is dead, by the rules of peer::Liveness. Pure; single-
// threaded. Only time that this process could have listened counts: a tick that comes late (this process was stopped or
// starved) adds no more silence than two heartbeats, since what the peer sent meanwhile may wait behind the tick.

#include <string>

#include "common/base/status.h"
#include "common/base/time.h"
#include "common/peer/protocols.h"

namespace millrace::peer {

class LivenessMonitor {
 public:
  LivenessMonitor(const Liveness& rules, TimePoint now) : rules_(rules), last_tick_(now) {}

  void Heard() { silence_ = Duration(0); }  // any message but a heartbeat
  void Heard(const Heartbeat& heartbeat);

  // Call at least once each heartbeat interval. Not OK, kUnavailable(kPeerLost): dead; the message says by which rule.
  Status Tick(TimePoint now);

 private:
  Liveness rules_;
  TimePoint last_tick_;
  Duration silence_{0};
  Duration stuck_{0};  // busy without progress
  uint64_t progress_ = 0;
  bool busy_ = false;
};

}  // namespace millrace::peer
