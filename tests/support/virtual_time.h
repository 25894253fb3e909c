#pragma once
// Several executors under one virtual clock, in the test's own thread. Which executor runs its next task is drawn from
// a seed, so each seed is one interleaving of the "threads", repeatable. Time moves only when nothing is ready.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/executor.h"
#include "common/base/random.h"

namespace millrace::support {

class VirtualTime;

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(VirtualTime& time, std::string name) : time_(time), name_(std::move(name)) {}
  void Post(Task task) override { ready_.push_back(std::move(task)); }
  TimerId PostAt(TimePoint when, Task task) override;
  void Cancel(TimerId timer) override;
  TimePoint Now() const override;
  const std::string& name() const { return name_; }
  // A stopped executor runs nothing; its tasks and timers wait.
  void set_stopped(bool stopped) { stopped_ = stopped; }

 private:
  friend class VirtualTime;
  bool Runnable() const { return !stopped_ && !ready_.empty(); }

  VirtualTime& time_;
  const std::string name_;
  bool stopped_ = false;
  std::deque<Task> ready_;
  std::map<std::pair<TimePoint, uint64_t>, Task> timers_;
};

class VirtualTime {
 public:
  explicit VirtualTime(uint64_t seed) : rng_(seed) {}
  VirtualExecutor& Add(std::string name);  // lives as long as this

  // Runs one ready task; false when there is none.
  bool RunOne();
  void RunReady() {
    while (RunOne()) {
    }
  }
  // Moves time on by `by`, running what becomes due on the way.
  void Advance(Duration by);
  // Runs until `done()`, jumping from timer to timer; false when `within` of virtual time passed before.
  bool RunUntil(const std::function<bool()>& done, Duration within);
  TimePoint Now() const { return now_; }
  uint64_t tasks_run() const { return tasks_run_; }

 private:
  friend class VirtualExecutor;
  void MoveTimers();
  TimePoint NextTimer() const;

  Rng rng_;
  TimePoint now_{Seconds(1)};
  uint64_t next_timer_ = 1;
  uint64_t tasks_run_ = 0;
  std::vector<std::unique_ptr<VirtualExecutor>> executors_;
};

}  // namespace millrace::support
