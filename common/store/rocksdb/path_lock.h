#pragma once
// Owns a folder: while it lives no other process (and nothing else in this one) can own it too.

#include <memory>
#include <string>

#include "common/base/status.h"

namespace millrace::store {

class PathLock {
 public:
  // Locks `folder`/LOCK, made when missing. kFailedPrecondition names the process that has it.
  static StatusOr<std::unique_ptr<PathLock>> Acquire(const std::string& folder);
  ~PathLock();
  PathLock(const PathLock&) = delete;
  PathLock& operator=(const PathLock&) = delete;

 private:
  explicit PathLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace millrace::store
