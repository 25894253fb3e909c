#pragma once
// An executor runs tasks one at a time, in the order posted; state owned by one executor needs no lock. Runtimes take
// an Executor& and never create threads. EventLoop is the real one; ManualExecutor runs in a test's own thread and
// virtual time.

#include <cstdint>
#include <functional>

#include "common/base/time.h"

namespace millrace {

using Task = std::function<void()>;
enum class TimerId : uint64_t { kNone = 0 };

// The next multiple of `interval` on the clock. Periodic work set to it wakes together, within a process and between
// processes that share a clock, instead of each at a time of its own: what is idle sleeps longer.
constexpr TimePoint NextBeat(TimePoint now, Duration interval) {
  return now + interval - now.time_since_epoch() % interval;
}

class Executor {
 public:
  virtual ~Executor() = default;

  // Thread-safe. Runs `task` after everything posted before it. After the executor stopped the task is destroyed unrun.
  // Posting never blocks: whoever posts on behalf of a peer must have at most a bounded number of tasks outstanding
  // (streams read their next message only after the last one was handled).
  virtual void Post(Task task) = 0;

  // Only from tasks of this executor (or before it starts). Runs `task` once at or after `when`; equal times in the
  // order set.
  virtual TimerId PostAt(TimePoint when, Task task) = 0;
  // Only from tasks of this executor. Cancelling a timer that ran or kNone is a no-op.
  virtual void Cancel(TimerId timer) = 0;

  virtual TimePoint Now() const = 0;

  TimerId PostAfter(Duration delay, Task task) { return PostAt(Now() + delay, std::move(task)); }
};

}  // namespace millrace
