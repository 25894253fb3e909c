#pragma once
// Starting a child of the supervisor.

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "services/cli/process_identity.h"

namespace millrace::cli {

struct SpawnOptions {
  std::string program;                 // path
  std::vector<std::string> arguments;  // without the program
  std::string log_path;                // stdout and stderr, appended
};

// The child gets a process group of its own, no input, default signal handling, and is killed when the calling thread
// ends. An exec that fails is an error here.
StatusOr<ProcessIdentity> Spawn(const SpawnOptions& options);

// How a child ended.
struct ChildExit {
  pid_t pid = 0;
  int status = 0;                // of waitpid
  std::string Describe() const;  // "exited with status 1", "was killed by signal 9 (Killed)"
  bool WrongUsage() const;       // exited with status 2: the same flags fail again
};
// One child that has ended and was not collected yet; nullopt when there is none.
std::optional<ChildExit> CollectChild();

}  // namespace millrace::cli
