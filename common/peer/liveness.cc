#include "common/peer/liveness.h"

#include <algorithm>

namespace millrace::peer {

void LivenessMonitor::Heard(const Heartbeat& heartbeat) {
  silence_ = Duration(0);
  if (!heartbeat.busy || !busy_ || heartbeat.progress != progress_) stuck_ = Duration(0);
  busy_ = heartbeat.busy;
  progress_ = heartbeat.progress;
}

Status LivenessMonitor::Tick(TimePoint now) {
  const Duration listened = std::min(now - last_tick_, 2 * rules_.heartbeat);
  last_tick_ = now;
  silence_ += listened;
  if (busy_) stuck_ += listened;
  if (silence_ >= rules_.silence) {
    return {Code::kUnavailable, Reason::kPeerLost,
            "no heartbeat for " + std::to_string(static_cast<int64_t>(ToMilliseconds(silence_))) + " ms"};
  }
  if (stuck_ >= rules_.progress) {
    return {Code::kUnavailable, Reason::kPeerLost,
            "work without progress for " + std::to_string(static_cast<int64_t>(ToMilliseconds(stuck_))) + " ms"};
  }
  return OkStatus();
}

}  // namespace millrace::peer
