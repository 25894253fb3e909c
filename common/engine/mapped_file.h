#pragma once
// What becomes of a process when a file that it has mapped shrinks: reading a page that is gone raises SIGBUS. Where a
// mapping is watched the process then logs one error that names the file, "mapped_file_lost", and exits with
// kMappedFileLostExit, so that whoever started it starts it again. Any other SIGBUS goes where it went before.

#include <cstddef>
#include <string>

namespace millrace::engine {

constexpr int kMappedFileLostExit = 74;  // EX_IOERR

// Watches a mapping while it lives; destroyed before the mapping is. Thread-safe. At most 16 at once: further ones are
// not watched. The first installs a handler of SIGBUS, which stays.
class MappedFileWatch {
 public:
  MappedFileWatch(const void* begin, size_t bytes, const std::string& path);
  ~MappedFileWatch();
  MappedFileWatch(const MappedFileWatch&) = delete;
  MappedFileWatch& operator=(const MappedFileWatch&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace millrace::engine
