#pragma once
// What `millrace up` keeps on disk of one local cluster: $XDG_STATE_HOME/millrace/<name> with state.json, lock, logs/,
// ready/ and store/.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "services/cli/process_identity.h"

namespace millrace::cli {

struct ProcessRecord {
  std::string name;  // "prefill-0"
  std::string role;  // "prefill"
  ProcessIdentity process;
  uint32_t restarts = 0;
};

struct ClusterRecord {
  ProcessIdentity supervisor;
  std::string endpoint;  // of the gateway, "http://127.0.0.1:8080"; empty until it is known
  std::string host;      // where the processes' admin ports listen
  std::string model;     // path
  std::vector<ProcessRecord> processes;
};

// What a process wrote about itself (--ready-file).
struct ReadyRecord {
  pid_t pid = 0;
  bool serving = false;
  std::string incarnation;
  uint16_t admin_port = 0;
  uint16_t grpc_port = 0;
  uint16_t http_port = 0;
};

std::string ToJson(const ClusterRecord& record);
StatusOr<ClusterRecord> ParseClusterRecord(std::string_view json);
StatusOr<ReadyRecord> ParseReadyRecord(std::string_view json);

// Held while a supervisor runs; released by the kernel however it ends.
class FolderLock {
 public:
  FolderLock() = default;
  explicit FolderLock(int fd) : fd_(fd) {}
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  int fd_ = -1;
};

class StateFolder {
 public:
  // Of the cluster `name` below XDG_STATE_HOME, or ~/.local/state. kInvalidArgument: a name that is not plain letters,
  // digits, '-', '_', '.'; or neither variable is set.
  static StatusOr<StateFolder> Locate(const std::string& name);

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  std::string log_path(const std::string& process) const { return path_ + "/logs/" + process + ".log"; }
  std::string ready_path(const std::string& process) const { return path_ + "/ready/" + process + ".json"; }
  std::string store_path(const std::string& process) const { return path_ + "/store/" + process; }

  Status Create() const;
  // kAlreadyExists when a supervisor holds it.
  StatusOr<FolderLock> Lock() const;
  // kNotFound when no cluster of this name was started or it was stopped.
  StatusOr<ClusterRecord> Read() const;
  Status Write(const ClusterRecord& record) const;
  StatusOr<ReadyRecord> ReadReady(const std::string& process) const;
  // Kills what a supervisor that is gone left running. Returns how many.
  int KillLeftovers() const;
  // Removes the state and the ready files; logs and the store's data stay.
  void Forget() const;
  // Logs so far become *.log.old.
  void RotateLogs() const;

 private:
  StateFolder(std::string name, std::string path) : name_(std::move(name)), path_(std::move(path)) {}
  std::string name_;
  std::string path_;
};

}  // namespace millrace::cli
