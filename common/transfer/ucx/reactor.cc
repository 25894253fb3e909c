#include "common/transfer/ucx/reactor.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <utility>

#include "common/base/check.h"

namespace millrace::transfer::ucx {

StatusOr<std::unique_ptr<Reactor>> Reactor::Start() {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return ErrnoStatus(errno, "ucx: epoll_create1");
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (wake_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0) {
    const Status status = ErrnoStatus(errno, "ucx: eventfd");
    if (wake_fd >= 0) close(wake_fd);
    close(epoll_fd);
    return status;
  }
  std::unique_ptr<Reactor> reactor(new Reactor(epoll_fd, wake_fd));
  reactor->thread_ = std::thread([raw = reactor.get()] { raw->Loop(); });
  pthread_setname_np(reactor->thread_.native_handle(), "transfer-ucx");
  return reactor;
}

Reactor::~Reactor() {
  Post([this] {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  });
  thread_.join();
  close(wake_fd_);
  close(epoll_fd_);
}

void Reactor::Post(Task task) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  if (first) eventfd_write(wake_fd_, 1);
}

void Reactor::Run(const std::function<void()>& task) {
  if (OnThread()) return task();
  std::promise<void> done;
  Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

Status Reactor::Add(Pollable* pollable) {
  Entry& entry = entries_.emplace_back();
  entry.pollable = pollable;
  if (pollable->fd() < 0) return OkStatus();
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &entry}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, pollable->fd(), &event) == 0) return OkStatus();
  const Status status = ErrnoStatus(errno, "ucx: epoll_ctl");
  entry.pollable = nullptr;
  return status;
}

void Reactor::Remove(Pollable* pollable) {
  Entry* entry = Find(pollable);
  if (entry == nullptr) return;
  if (pollable->fd() >= 0) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, pollable->fd(), nullptr);
  entry->pollable = nullptr;
}

void Reactor::Wake(Pollable* pollable) {
  if (Entry* entry = Find(pollable)) {
    entry->hot = true;
    entry->armed = false;
  }
}

Reactor::Entry* Reactor::Find(Pollable* pollable) {
  const auto it =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.pollable == pollable; });
  return it == entries_.end() ? nullptr : &*it;
}

bool Reactor::RunTasks() {
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) task();
  return !tasks.empty();
}

bool Reactor::WorkOnce() {
  bool busy = false;
  for (Entry& entry : entries_) {
    if (entry.pollable == nullptr || !entry.hot) continue;
    entry.armed = false;
    entry.hot = false;
    const bool more = entry.pollable->Work();
    entry.hot = entry.hot || more;
    busy = busy || entry.hot;
  }
  std::erase_if(entries_, [](const Entry& entry) { return entry.pollable == nullptr; });
  return busy;
}

bool Reactor::ArmAll() {
  bool all = true;
  for (Entry& entry : entries_) {
    if (entry.pollable == nullptr || entry.armed) continue;
    entry.armed = entry.pollable->Arm();
    entry.hot = !entry.armed;
    all = all && entry.armed;
  }
  return all;
}

void Reactor::Poll(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_fd_, events.data(), events.size(), timeout_ms);
  for (int i = 0; i < count; ++i) {
    if (Entry* entry = static_cast<Entry*>(events[i].data.ptr)) {
      entry->hot = true;
      entry->armed = false;
    } else {
      eventfd_t ignored;
      eventfd_read(wake_fd_, &ignored);
    }
  }
}

void Reactor::Loop() {
  for (;;) {
    const bool ran = RunTasks();
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    const bool busy = WorkOnce();
    Poll(ran || busy || !ArmAll() ? 0 : -1);
  }
}

}  // namespace millrace::transfer::ucx
