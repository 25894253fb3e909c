#pragma once
// Processes that this program started, named so that a recycled pid is never taken for one of them.

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/base/time.h"

namespace millrace::cli {

struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // since boot
  std::string boot_id;       // of the boot that the ticks count from
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// Of the process that has `pid` now; kNotFound when there is none or it is a zombie.
StatusOr<ProcessIdentity> IdentifyProcess(pid_t pid);
bool IsAlive(const ProcessIdentity& process);
// Delivers to exactly that process; kNotFound when it has ended, whoever has its pid now.
Status SignalProcess(const ProcessIdentity& process, int signal);
// True when it ended within `timeout` (a zombie counts).
bool WaitForEnd(const ProcessIdentity& process, Duration timeout);

}  // namespace millrace::cli
