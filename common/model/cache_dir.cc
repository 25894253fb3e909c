#include "common/model/cache_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "common/base/random.h"

namespace millrace::model {
namespace {

constexpr size_t kWriteBytes = size_t{16} << 20;
constexpr char kTemporary[] = ".tmp";

// Makes `dir` and its parents, private to the user.
Status MakeDirs(const std::string& dir) {
  for (size_t slash = dir.find('/', 1); slash != std::string::npos; slash = dir.find('/', slash + 1)) {
    mkdir(dir.substr(0, slash).c_str(), 0700);
  }
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, "creating the folder " + dir);
  return OkStatus();
}

Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "writing " + path);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return OkStatus();
}

// Removes temporary files of `path` that a process left when it died: a living writer holds a lock on its own.
void RemoveAbandoned(const std::string& dir, const std::string& name) {
  DIR* entries = opendir(dir.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    const std::string found = entry->d_name;
    if (!found.starts_with(name + ".") || !found.ends_with(kTemporary)) continue;
    const std::string path = dir + "/" + found;
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid() && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  }
  closedir(entries);
}

}  // namespace

std::string DefaultCacheDir() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/millrace";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/millrace";
  return "";
}

Status WriteCacheFile(const std::string& dir, const std::string& name,
                      std::span<const std::span<const std::byte>> pieces) {
  MR_RETURN_IF_ERROR(MakeDirs(dir));
  const std::string path = dir + "/" + name;
  RemoveAbandoned(dir, name);
  const std::string temporary = path + "." + std::to_string(RandomSeed()) + kTemporary;
  const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400));
  if (!file.valid()) return ErrnoStatus(errno, "creating " + temporary);
  Status status;
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) status = ErrnoStatus(errno, "locking " + temporary);
  for (std::span<const std::byte> piece : pieces) {
    if (status.ok()) status = WriteAll(file.get(), piece, temporary);
  }
  if (status.ok() && fsync(file.get()) != 0) status = ErrnoStatus(errno, "syncing " + temporary);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = ErrnoStatus(errno, "renaming to " + path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Status ReadExactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t got = pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "reading " + path);
    if (got == 0) return DataLoss(path + " ends at byte " + std::to_string(offset));
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return OkStatus();
}

}  // namespace millrace::model
