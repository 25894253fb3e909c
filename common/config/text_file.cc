#include "common/config/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace millrace::config {

StatusOr<std::string> ReadTextFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return ErrnoStatus(errno, "reading " + path);
  std::string text;
  std::array<char, 16384> part;
  ssize_t got = 0;
  while ((got = read(file, part.data(), part.size())) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(part.data(), static_cast<size_t>(got));
  }
  const int error = errno;
  close(file);
  if (got < 0) return ErrnoStatus(error, "reading " + path);
  return text;
}

}  // namespace millrace::config
