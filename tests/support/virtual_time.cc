#include "tests/support/virtual_time.h"

#include <algorithm>

namespace millrace::support {

TimerId VirtualExecutor::PostAt(TimePoint when, Task task) {
  const uint64_t id = time_.next_timer_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  return TimerId{id};
}

void VirtualExecutor::Cancel(TimerId timer) {
  std::erase_if(timers_, [&](const auto& entry) { return entry.first.second == static_cast<uint64_t>(timer); });
}

TimePoint VirtualExecutor::Now() const { return time_.now_; }

VirtualExecutor& VirtualTime::Add(std::string name) {
  executors_.push_back(std::make_unique<VirtualExecutor>(*this, std::move(name)));
  return *executors_.back();
}

void VirtualTime::MoveTimers() {
  for (const auto& executor : executors_) {
    while (!executor->stopped_ && !executor->timers_.empty() && executor->timers_.begin()->first.first <= now_) {
      executor->ready_.push_back(std::move(executor->timers_.begin()->second));
      executor->timers_.erase(executor->timers_.begin());
    }
  }
}

TimePoint VirtualTime::NextTimer() const {
  TimePoint next = kNever;
  for (const auto& executor : executors_) {
    if (!executor->stopped_ && !executor->timers_.empty()) {
      next = std::min(next, std::max(now_, executor->timers_.begin()->first.first));
    }
  }
  return next;
}

bool VirtualTime::RunOne() {
  MoveTimers();
  std::vector<VirtualExecutor*> runnable;
  for (const auto& executor : executors_) {
    if (executor->Runnable()) runnable.push_back(executor.get());
  }
  if (runnable.empty()) return false;
  VirtualExecutor& chosen = *runnable[rng_.Below(runnable.size())];
  const Task task = std::move(chosen.ready_.front());
  chosen.ready_.pop_front();
  ++tasks_run_;
  task();
  return true;
}

void VirtualTime::Advance(Duration by) {
  const TimePoint target = now_ + by;
  RunReady();
  while (NextTimer() <= target) {
    now_ = NextTimer();
    RunReady();
  }
  now_ = target;
}

bool VirtualTime::RunUntil(const std::function<bool()>& done, Duration within) {
  const TimePoint target = now_ + within;
  while (!done()) {
    if (RunOne()) continue;
    const TimePoint next = NextTimer();
    if (next > target) return false;
    now_ = next;
  }
  return true;
}

}  // namespace millrace::support
