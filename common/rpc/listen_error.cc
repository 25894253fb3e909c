#include "common/rpc/listen_error.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace millrace::rpc {

Status ListenError(const std::string& host, uint16_t port) {
  const std::string what = "cannot listen on " + host + " port " + std::to_string(port);
  const bool bracketed = host.size() > 2 && host.front() == '[';
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(bare.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return InvalidArgument(what + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  const int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return ErrnoStatus(errno, what);
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool failed = bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 || listen(descriptor, 1) != 0;
  const int error = errno;
  close(descriptor);
  if (!failed) return Unavailable(what + ": try again, or another port");
  Status status = ErrnoStatus(error, what);
  return error == EADDRINUSE ? Status(status.code(), status.message() + "; stop what uses it or choose another port")
                             : status;
}

}  // namespace millrace::rpc
