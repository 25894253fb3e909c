#pragma once
// EventLoop: an Executor on one thread of its own. ManualExecutor: an Executor driven by a test in virtual time.

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/base/executor.h"

namespace millrace {

class EventLoop final : public Executor {
 public:
  // Starts the thread; `name` (at most 15 characters) shows in debuggers.
  explicit EventLoop(std::string name);
  // Stops and joins. Not from one of its own tasks.
  ~EventLoop() override;

  void Post(Task task) override;
  TimerId PostAt(TimePoint when, Task task) override;
  void Cancel(TimerId timer) override;
  TimePoint Now() const override { return SystemClock().Now(); }

  // Runs what was posted before this call, then ends the thread; later tasks are destroyed unrun. Idempotent.
  void Stop();
  size_t depth() const;  // tasks waiting now

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> inbox_;                                 // guarded by mutex_
  std::map<std::pair<TimePoint, uint64_t>, Task> timers_;  // guarded by mutex_
  std::map<uint64_t, TimePoint> timer_times_;              // guarded by mutex_
  uint64_t next_timer_ = 1;                                // guarded by mutex_
  bool stopping_ = false;                                  // guarded by mutex_
  std::thread thread_;
};

// Single-threaded; nothing runs until Run* is called.
class ManualExecutor final : public Executor {
 public:
  void Post(Task task) override { inbox_.push_back(std::move(task)); }
  TimerId PostAt(TimePoint when, Task task) override;
  void Cancel(TimerId timer) override;
  TimePoint Now() const override { return now_; }

  // Runs posted tasks until none is left, without moving time. Returns how many ran.
  size_t RunReady();
  // Moves time to `now() + by`, running timers and tasks in order on the way.
  void Advance(Duration by);
  size_t timers() const { return timers_.size(); }

 private:
  TimePoint now_{Duration(1'000'000'000)};
  std::deque<Task> inbox_;
  std::map<std::pair<TimePoint, uint64_t>, Task> timers_;
  uint64_t next_timer_ = 1;
};

}  // namespace millrace
