#include "services/cli/preflight.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "common/model/gguf.h"

namespace millrace::cli {

Status CheckListen(const std::string& host, uint16_t port) {
  const std::string where = host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return Status(Code::kInvalidArgument, Reason::kBadValue, "--host " + host + ": " + gai_strerror(error));
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool free = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (fd >= 0) close(fd);
  if (free) return OkStatus();
  if (error == EADDRINUSE) {
    return Status(Code::kFailedPrecondition,
                  where + " is in use by another program: stop it, or choose another --port (0 = any free one)");
  }
  if (error == EADDRNOTAVAIL) {
    return Status(Code::kInvalidArgument, Reason::kBadValue,
                  "--host " + host +
                      " is not an address of this machine; 127.0.0.1 serves this machine alone, 0.0.0.0 others too");
  }
  return ErrnoStatus(error, "listen on " + where + " (--host, --port)");
}

namespace {

Status CheckModel(const std::string& path, uint32_t context) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return NotFound("the model file " + path +
                    " is not there; deploy/quickstart.sh fetches the default model, --model FILE.gguf names another");
  }
  MR_ASSIGN_OR_RETURN(const auto file, model::GgufFile::Open(path));
  MR_ASSIGN_OR_RETURN(const std::string architecture, file->String("general.architecture"));
  MR_ASSIGN_OR_RETURN(const uint64_t most, file->Uint(architecture + ".context_length"));
  if (context <= most) return OkStatus();
  return Status(Code::kInvalidArgument, Reason::kBadValue,
                "--context " + std::to_string(context) + " is more than the " + std::to_string(most) +
                    " tokens of the model; 0 = the model's");
}

}  // namespace

StatusOr<std::string> ProgramFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoStatus(error.value(), "read /proc/self/exe");
  return self.parent_path().string();
}

Status CheckFiles(const UpConfig& config, const std::string& programs) {
  for (const ProcessPlan& plan : PlanProcesses(config)) {
    const std::string path = programs + "/" + plan.program;
    if (access(path.c_str(), X_OK) != 0) return NotFound(path + " is not there; build all targets");
  }
  if (!config.api_key_file.empty() && access(config.api_key_file.c_str(), R_OK) != 0) {
    return ErrnoStatus(errno, "read " + config.api_key_file + " (--api-key-file)");
  }
  return CheckModel(config.model, config.context);
}

}  // namespace millrace::cli
