#include "common/base/event_loop.h"

#include <pthread.h>

#include <optional>

namespace millrace {

EventLoop::EventLoop(std::string name) {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Post(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    inbox_.push_back(std::move(task));
  }
  wake_.notify_one();
}

TimerId EventLoop::PostAt(TimePoint when, Task task) {
  std::lock_guard lock(mutex_);
  const uint64_t id = next_timer_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  timer_times_.emplace(id, when);
  wake_.notify_one();
  return TimerId{id};
}

void EventLoop::Cancel(TimerId timer) {
  Task dropped;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  const auto id = static_cast<uint64_t>(timer);
  const auto time = timer_times_.find(id);
  if (time == timer_times_.end()) return;
  const auto entry = timers_.find(std::pair(time->second, id));
  dropped = std::move(entry->second);
  timers_.erase(entry);
  timer_times_.erase(time);
}

void EventLoop::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  std::map<std::pair<TimePoint, uint64_t>, Task> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(timers_);
  timer_times_.clear();
}

size_t EventLoop::depth() const {
  std::lock_guard lock(mutex_);
  return inbox_.size();
}

void EventLoop::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    Task task;
    if (!timers_.empty() && timers_.begin()->first.first <= Now()) {
      const auto entry = timers_.begin();
      task = std::move(entry->second);
      timer_times_.erase(entry->first.second);
      timers_.erase(entry);
    } else if (!inbox_.empty()) {
      task = std::move(inbox_.front());
      inbox_.pop_front();
    } else if (stopping_) {
      return;
    } else if (timers_.empty()) {
      wake_.wait(lock);
      continue;
    } else {
      const Duration until = timers_.begin()->first.first - Now();
      if (until > Duration(0)) wake_.wait_for(lock, until);
      continue;
    }
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

TimerId ManualExecutor::PostAt(TimePoint when, Task task) {
  const uint64_t id = next_timer_++;
  timers_.emplace(std::pair(when, id), std::move(task));
  return TimerId{id};
}

void ManualExecutor::Cancel(TimerId timer) {
  for (auto it = timers_.begin(); it != timers_.end(); ++it) {
    if (it->first.second == static_cast<uint64_t>(timer)) {
      timers_.erase(it);
      return;
    }
  }
}

size_t ManualExecutor::RunReady() {
  size_t ran = 0;
  while (!inbox_.empty()) {
    Task task = std::move(inbox_.front());
    inbox_.pop_front();
    task();
    ++ran;
  }
  return ran;
}

void ManualExecutor::Advance(Duration by) {
  const TimePoint target = now_ + by;
  RunReady();
  while (!timers_.empty() && timers_.begin()->first.first <= target) {
    auto entry = timers_.begin();
    now_ = std::max(now_, entry->first.first);
    Task task = std::move(entry->second);
    timers_.erase(entry);
    task();
    RunReady();
  }
  now_ = target;
}

}  // namespace millrace
