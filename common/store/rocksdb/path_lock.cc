#include "common/store/rocksdb/path_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace millrace::store {

StatusOr<std::unique_ptr<PathLock>> PathLock::Acquire(const std::string& folder) {
  const std::string path = folder + "/LOCK";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "open " + path);
  std::unique_ptr<PathLock> lock(new PathLock(fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + path);
    char owner[32] = {};
    const ssize_t n = pread(fd, owner, sizeof(owner) - 1, 0);
    const std::string who = n > 0 ? "process " + std::string(owner, static_cast<size_t>(n)) : "another process";
    return FailedPrecondition("store folder " + folder + " is in use by " + who +
                              ": stop it, or give this store a folder of its own");
  }
  // The name of the owner is a courtesy: a full disk may refuse it.
  const std::string pid = std::to_string(getpid());
  [[maybe_unused]] const bool told = ftruncate(fd, 0) == 0 && pwrite(fd, pid.data(), pid.size(), 0) > 0;
  return lock;
}

PathLock::~PathLock() { close(fd_); }

}  // namespace millrace::store
