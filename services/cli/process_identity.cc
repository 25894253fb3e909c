#include "services/cli/process_identity.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <thread>
#include <vector>

#include "common/config/text_file.h"

namespace millrace::cli {
namespace {

const std::string& BootId() {
  static const std::string id = [] {
    const StatusOr<std::string> read = config::ReadTextFile("/proc/sys/kernel/random/boot_id");
    std::string text = read.ok() ? *read : "";
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }();
  return id;
}

Status Gone(pid_t pid) { return NotFound("process " + std::to_string(pid) + " has ended"); }

// Owns a pidfd: a handle that keeps meaning one process whatever becomes of its number.
class PidHandle {
 public:
  explicit PidHandle(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  ~PidHandle() {
    if (fd_ >= 0) close(fd_);
  }
  PidHandle(const PidHandle&) = delete;
  PidHandle& operator=(const PidHandle&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

StatusOr<ProcessIdentity> IdentifyProcess(pid_t pid) {
  if (pid <= 0) return Gone(pid);
  const StatusOr<std::string> read = config::ReadTextFile("/proc/" + std::to_string(pid) + "/stat");
  if (!read.ok()) return Gone(pid);
  const std::string& stat = *read;
  // The second field is the name in parentheses and may hold anything; state is the first field after it.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return Gone(pid);
  std::istringstream fields(stat.substr(name_end + 1));
  const std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
  constexpr size_t kState = 0;
  constexpr size_t kStartTime = 19;
  if (words.size() <= kStartTime || words[kState] == "Z" || words[kState] == "X") return Gone(pid);
  return ProcessIdentity{pid, std::stoull(words[kStartTime]), BootId()};
}

bool IsAlive(const ProcessIdentity& process) {
  const StatusOr<ProcessIdentity> now = IdentifyProcess(process.pid);
  return now.ok() && *now == process;
}

Status SignalProcess(const ProcessIdentity& process, int signal) {
  const PidHandle handle(process.pid);
  if (!IsAlive(process)) return Gone(process.pid);  // checked after the handle was taken, so it is of this process
  const int result = handle.fd() >= 0
                         ? static_cast<int>(syscall(SYS_pidfd_send_signal, handle.fd(), signal, nullptr, 0))
                         : kill(process.pid, signal);
  return result == 0 ? OkStatus() : ErrnoStatus(errno, "signal process " + std::to_string(process.pid));
}

bool WaitForEnd(const ProcessIdentity& process, Duration timeout) {
  const TimePoint deadline = SystemClock().Now() + timeout;
  const PidHandle handle(process.pid);
  while (IsAlive(process)) {
    const Duration left = deadline - SystemClock().Now();
    if (left <= Duration(0)) return false;
    const auto wait_ms = std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 1, 100);
    pollfd wait{handle.fd(), POLLIN, 0};
    if (handle.fd() < 0 || poll(&wait, 1, static_cast<int>(wait_ms)) < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    }
  }
  return true;
}

}  // namespace millrace::cli
