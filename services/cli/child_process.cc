#include "services/cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace millrace::cli {
namespace {

// Between fork and exec only async-signal-safe calls.
[[noreturn]] void RunChild(const char* program, char* const* argv, int log, int error_pipe, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0) {
    _exit(127);
  }
  execv(program, argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(error_pipe, &error, sizeof(error));
  _exit(127);
}

}  // namespace

StatusOr<ProcessIdentity> Spawn(const SpawnOptions& options) {
  std::vector<std::string> words{options.program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const int log = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return ErrnoStatus(errno, "open " + options.log_path);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    close(log);
    return ErrnoStatus(errno, "pipe");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunChild(options.program.c_str(), argv.data(), log, pipe_fds[1], parent);
  const int fork_error = errno;
  close(log);
  close(pipe_fds[1]);
  int exec_error = 0;
  const ssize_t got = pid < 0 ? 0 : read(pipe_fds[0], &exec_error, sizeof(exec_error));
  close(pipe_fds[0]);
  if (pid < 0) return ErrnoStatus(fork_error, "fork for " + options.program);
  if (got == static_cast<ssize_t>(sizeof(exec_error))) {
    waitpid(pid, nullptr, 0);
    return ErrnoStatus(exec_error, "run " + options.program);
  }
  StatusOr<ProcessIdentity> identity = IdentifyProcess(pid);
  // It may have ended already; until it is collected its pid cannot be another's.
  if (!identity.ok()) return ProcessIdentity{pid, 0, ""};
  return identity;
}

std::string ChildExit::Describe() const {
  if (WIFSIGNALED(status)) {
    return "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

bool ChildExit::WrongUsage() const { return WIFEXITED(status) && WEXITSTATUS(status) == 2; }

std::optional<ChildExit> CollectChild() {
  int status = 0;
  const pid_t pid = waitpid(-1, &status, WNOHANG);
  if (pid <= 0) return std::nullopt;
  return ChildExit{pid, status};
}

}  // namespace millrace::cli
