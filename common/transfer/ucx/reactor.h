#pragma once
// The transport's one thread: runs posted tasks and drives pollables, and sleeps in epoll when all of them are idle.

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/executor.h"
#include "common/base/status.h"

namespace millrace::transfer::ucx {

// Something to drive. All calls on the reactor's thread.
class Pollable {
 public:
  virtual ~Pollable() = default;
  // Does a bounded amount of work (about 0.1 ms). True when there may be more to do at once.
  virtual bool Work() = 0;
  // Descriptor that becomes readable when there is work again, -1 for none (then only Wake brings it).
  virtual int fd() const = 0;
  // Called before sleeping. False when there is work after all.
  virtual bool Arm() = 0;
};

class Reactor {
 public:
  static StatusOr<std::unique_ptr<Reactor>> Start();
  // Runs what was posted, then ends the thread. All pollables are removed before.
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Thread-safe. In the order posted.
  void Post(Task task);
  // Thread-safe. Runs `task` on the thread and returns after it; at once when called there.
  void Run(const std::function<void()>& task);
  bool OnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // On the thread only.
  Status Add(Pollable* pollable);
  void Remove(Pollable* pollable);
  void Wake(Pollable* pollable);  // calls Work again; for work that its descriptor does not tell

 private:
  struct Entry {
    Pollable* pollable = nullptr;  // null once removed
    bool hot = true;               // Work again
    bool armed = false;            // may sleep
  };

  Reactor(int epoll_fd, int wake_fd) : epoll_fd_(epoll_fd), wake_fd_(wake_fd) {}
  void Loop();
  bool RunTasks();
  bool WorkOnce();
  bool ArmAll();
  void Poll(int timeout_ms);
  Entry* Find(Pollable* pollable);

  const int epoll_fd_;
  const int wake_fd_;
  std::mutex mutex_;
  std::vector<Task> tasks_;   // guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  std::list<Entry> entries_;  // only on the thread
  std::thread thread_;
};

}  // namespace millrace::transfer::ucx
