#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "services/cli/commands.h"
#include "services/cli/preflight.h"
#include "services/cli/supervisor.h"

namespace millrace::cli {
namespace {

constexpr char kName[] = "up";
// Last byte that a detached supervisor sends to the process that started it.
constexpr char kReadyMark = '\x06';

// Lines on stdout. Transient ones overwrite each other on a terminal, and are thinned out elsewhere.
class Console {
 public:
  explicit Console(bool terminal) : terminal_(terminal) {}

  void Print(const std::string& line, bool transient) {
    const TimePoint now = SystemClock().Now();
    if (transient && !terminal_ && now - last_transient_ < kTransientInterval) return;
    if (transient) last_transient_ = now;
    const bool overwrite = transient && terminal_;
    std::printf("%s%s%s", pending_ ? "\r\x1b[K" : "", overwrite ? line.substr(0, kTerminalWidth).c_str() : line.c_str(),
                overwrite ? "" : "\n");
    std::fflush(stdout);
    pending_ = overwrite;
  }
  void LeaveTerminal() { terminal_ = false; }

 private:
  static constexpr Duration kTransientInterval = Seconds(2);
  static constexpr size_t kTerminalWidth = 110;
  bool terminal_;
  bool pending_ = false;
  TimePoint last_transient_{};
};

void PrintReady(const UpConfig& config, const Supervisor& supervisor, Console& console) {
  console.Print("ready: " + supervisor.endpoint() + "/v1", false);
  if (!config.detach) console.Print("Ctrl-C stops it", false);
}

// The supervisor's part; `ready` runs once when the cluster is.
int Supervise(const UpConfig& config, const StateFolder& folder, const std::string& programs, Console& console,
              const std::function<void()>& ready) {
  Supervisor supervisor(config, folder, programs,
                        [&console](const std::string& line, bool transient) { console.Print(line, transient); });
  if (const Status status = supervisor.Start(); !status.ok()) {
    const int exit_status = status.code() == Code::kCancelled ? 0 : Fail(kName, status);
    supervisor.Stop();
    return exit_status;
  }
  PrintReady(config, supervisor, console);
  ready();
  supervisor.Run();
  console.Print("stopping", false);
  supervisor.Stop();
  console.Print("stopped", false);
  return 0;
}

Status MoveToBackground(int progress) {
  setsid();
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0) return ErrnoStatus(errno, "open /dev/null");
  if (dup2(progress, STDOUT_FILENO) < 0 || dup2(progress, STDERR_FILENO) < 0) return ErrnoStatus(errno, "dup2");
  return OkStatus();
}

// From here on the supervisor's lines go to its log.
void LeaveStarter(const std::string& log_path) {
  std::fputc(kReadyMark, stdout);
  std::fflush(stdout);
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const int fallback = log >= 0 ? log : open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(fallback, STDOUT_FILENO);
  dup2(fallback, STDERR_FILENO);
}

// Copies what the detached supervisor says until it is ready or ends.
int FollowDetached(int progress, pid_t child) {
  char buffer[4096];
  for (ssize_t got; (got = read(progress, buffer, sizeof(buffer))) > 0;) {
    const bool ready = buffer[got - 1] == kReadyMark;
    std::fwrite(buffer, 1, static_cast<size_t>(ready ? got - 1 : got), stdout);
    std::fflush(stdout);
    if (ready) return 0;
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
}

int Detach(const UpConfig& config, const StateFolder& folder, const std::string& programs) {
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return Fail(kName, ErrnoStatus(errno, "pipe"));
  const pid_t child = fork();
  if (child < 0) return Fail(kName, ErrnoStatus(errno, "fork"));
  if (child > 0) {
    close(pipe_fds[1]);
    return FollowDetached(pipe_fds[0], child);
  }
  const std::string log_path = folder.log_path("supervisor");
  if (const Status status = MoveToBackground(pipe_fds[1]); !status.ok()) return Fail(kName, status);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  Console console(terminal);
  return Supervise(config, folder, programs, console, [&] {
    LeaveStarter(log_path);
    console.LeaveTerminal();
  });
}

}  // namespace

int RunUp(const std::vector<std::string>& arguments) {
  UpConfig config;
  config.model = DefaultModelPath();
  config::Schema schema(
      "millrace up", "[flags]",
      "Starts gateway, balancers, workers and store as processes of this machine, restarts those that "
      "end, and stops all on Ctrl-C.");
  config.Describe(schema);
  const ParsedCommand parsed = ParseCommand(schema, arguments);
  if (parsed.over) return parsed.exit_status;
  if (const Status status = config.Validate(); !status.ok()) return Fail(kName, status);
  unsetenv("MILLRACE_CONFIG");  // its keys are of this command, not of the processes
  std::error_code error;
  config.model = std::filesystem::absolute(config.model, error).string();

  const StatusOr<std::string> programs = ProgramFolder();
  if (!programs.ok()) return Fail(kName, programs.status());
  if (const Status status = CheckFiles(config, *programs); !status.ok()) return Fail(kName, status);
  const StatusOr<StateFolder> folder = StateFolder::Locate(config.name);
  if (!folder.ok()) return Fail(kName, folder.status());
  if (const Status status = folder->Create(); !status.ok()) return Fail(kName, status);
  const StatusOr<FolderLock> lock = folder->Lock();
  if (!lock.ok()) return Fail(kName, lock.status());
  if (const int killed = folder->KillLeftovers(); killed > 0) {
    std::printf("stopped %d processes that an earlier run left\n", killed);
  }
  folder->Forget();
  folder->RotateLogs();
  if (const Status status = CheckListen(config.host, config.port); !status.ok()) return Fail(kName, status);
  if (config.detach) return Detach(config, *folder, *programs);
  Console console(isatty(STDOUT_FILENO) == 1);
  return Supervise(config, *folder, *programs, console, [] {});
}

}  // namespace millrace::cli
