#pragma once
// An executor for what may end before its tasks do: after Close, tasks and timers given to it are dropped unrun. The
// tasks run on `inner`, in order with its others.

#include <memory>
#include <utility>

#include "common/base/executor.h"

namespace millrace::worker {

class ScopedExecutor final : public Executor {
 public:
  explicit ScopedExecutor(Executor& inner) : inner_(inner), open_(std::make_shared<bool>(true)) {}

  // On `inner`.
  void Close() { *open_ = false; }

  void Post(Task task) override { inner_.Post(Guarded(std::move(task))); }
  TimerId PostAt(TimePoint when, Task task) override { return inner_.PostAt(when, Guarded(std::move(task))); }
  void Cancel(TimerId timer) override { inner_.Cancel(timer); }
  TimePoint Now() const override { return inner_.Now(); }

 private:
  Task Guarded(Task task) const {
    return [open = open_, task = std::move(task)] {
      if (*open) task();
    };
  }

  Executor& inner_;
  std::shared_ptr<bool> open_;  // read and written on `inner`
};

}  // namespace millrace::worker
