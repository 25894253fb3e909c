#include "services/cli/state_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/config/text_file.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

template <class T>
T Field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<std::string>() : std::string();
  } else if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() && found->template get<bool>();
  } else {
    return found->is_number_integer() ? found->template get<T>() : T{};
  }
}

Json IdentityJson(const ProcessIdentity& process) {
  return {{"pid", process.pid}, {"start_ticks", process.start_ticks}, {"boot_id", process.boot_id}};
}

ProcessIdentity ParseIdentity(const Json& object) {
  if (!object.is_object()) return {};
  return {Field<pid_t>(object, "pid"), Field<uint64_t>(object, "start_ticks"), Field<std::string>(object, "boot_id")};
}

}  // namespace

std::string ToJson(const ClusterRecord& record) {
  Json json = {{"supervisor", IdentityJson(record.supervisor)},
               {"endpoint", record.endpoint},
               {"host", record.host},
               {"model", record.model},
               {"processes", Json::array()}};
  for (const ProcessRecord& process : record.processes) {
    json["processes"].push_back({{"name", process.name},
                                 {"role", process.role},
                                 {"process", IdentityJson(process.process)},
                                 {"restarts", process.restarts}});
  }
  return json.dump(2) + "\n";
}

StatusOr<ClusterRecord> ParseClusterRecord(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("supervisor")) return InvalidArgument("not the state of a cluster");
  ClusterRecord record;
  record.supervisor = ParseIdentity(json["supervisor"]);
  record.endpoint = Field<std::string>(json, "endpoint");
  record.host = Field<std::string>(json, "host");
  record.model = Field<std::string>(json, "model");
  const auto processes = json.find("processes");
  if (processes == json.end() || !processes->is_array()) return record;
  for (const Json& process : *processes) {
    if (!process.is_object() || !process.contains("process")) continue;
    record.processes.push_back({Field<std::string>(process, "name"), Field<std::string>(process, "role"),
                                ParseIdentity(process["process"]), Field<uint32_t>(process, "restarts")});
  }
  return record;
}

StatusOr<ReadyRecord> ParseReadyRecord(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return InvalidArgument("not a ready file");
  return ReadyRecord{Field<pid_t>(json, "pid"),
                     Field<std::string>(json, "stage") == "serving",
                     Field<std::string>(json, "incarnation"),
                     Field<uint16_t>(json, "admin_port"),
                     Field<uint16_t>(json, "grpc_port"),
                     Field<uint16_t>(json, "http_port")};
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

StatusOr<StateFolder> StateFolder::Locate(const std::string& name) {
  const bool plain =
      !name.empty() && name.front() != '.' && name.size() <= 64 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == std::string::npos;
  if (!plain) {
    return Status(Code::kInvalidArgument, Reason::kBadValue,
                  "--name '" + name + "' must be letters, digits, '-', '_' and '.', at most 64, not starting with '.'");
  }
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && *state != '\0') return StateFolder(name, std::string(state) + "/millrace/" + name);
  if (home != nullptr && *home != '\0') return StateFolder(name, std::string(home) + "/.local/state/millrace/" + name);
  return InvalidArgument("no place for the cluster's state: set HOME or XDG_STATE_HOME");
}

Status StateFolder::Create() const {
  for (const char* folder : {"", "/logs", "/ready", "/store"}) {
    std::error_code error;
    fs::create_directories(path_ + folder, error);
    if (error) return ErrnoStatus(error.value(), "create " + path_ + folder);
  }
  return OkStatus();
}

StatusOr<FolderLock> StateFolder::Lock() const {
  const std::string path = path_ + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "open " + path);
  FolderLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + path);
  return Status(Code::kAlreadyExists, "a cluster named '" + name_ +
                                          "' is running; see `millrace status`, stop it with `millrace down`, or give "
                                          "this one another --name");
}

StatusOr<ClusterRecord> StateFolder::Read() const {
  const StatusOr<std::string> text = config::ReadTextFile(path_ + "/state.json");
  if (!text.ok()) return NotFound("no cluster named '" + name_ + "' is running (" + path_ + ")");
  StatusOr<ClusterRecord> record = ParseClusterRecord(*text);
  if (!record.ok()) return record.status().Annotate(path_ + "/state.json");
  return record;
}

Status StateFolder::Write(const ClusterRecord& record) const {
  const std::string path = path_ + "/state.json";
  const std::string temporary = path + ".tmp";
  {
    std::ofstream file(temporary, std::ios::binary);
    file << ToJson(record);
    if (!file.flush()) return ErrnoStatus(errno, "write " + temporary);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename " + temporary);
  return OkStatus();
}

StatusOr<ReadyRecord> StateFolder::ReadReady(const std::string& process) const {
  MR_ASSIGN_OR_RETURN(const std::string text, config::ReadTextFile(ready_path(process)));
  return ParseReadyRecord(text);
}

int StateFolder::KillLeftovers() const {
  const StatusOr<ClusterRecord> left = Read();
  if (!left.ok()) return 0;
  int killed = 0;
  for (const ProcessRecord& record : left->processes) {
    if (!SignalProcess(record.process, SIGKILL).ok()) continue;
    WaitForEnd(record.process, Seconds(5));
    ++killed;
  }
  return killed;
}

void StateFolder::Forget() const {
  std::error_code error;
  fs::remove(path_ + "/state.json", error);
  for (const auto& entry : fs::directory_iterator(path_ + "/ready", error)) fs::remove(entry.path(), error);
}

void StateFolder::RotateLogs() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_ + "/logs", error)) {
    if (entry.path().extension() == ".log") fs::rename(entry.path(), entry.path().string() + ".old", error);
  }
}

}  // namespace millrace::cli
