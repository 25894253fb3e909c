#pragma once
// The folder of what can be made again: packed weights and digests of model files.

#include <cstddef>
#include <span>
#include <string>

#include "common/base/status.h"

namespace millrace::model {

// $XDG_CACHE_HOME/millrace, else $HOME/.cache/millrace; empty when neither is set.
std::string DefaultCacheDir();

// Writes the pieces to `<dir>/<name>` through a temporary file and a rename, synced, making `dir` first: readers see
// the old content or the new, whole. The file is read-only: others may have it mapped. On error nothing is left behind.
Status WriteCacheFile(const std::string& dir, const std::string& name,
                      std::span<const std::span<const std::byte>> pieces);

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  const int fd_;
};

// Reads exactly out.size() bytes at `offset`; kDataLoss when the file ends before.
Status ReadExactly(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path);

}  // namespace millrace::model
