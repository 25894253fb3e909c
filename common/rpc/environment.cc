#include "common/rpc/environment.h"

#include <grpc/support/log.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <mutex>
#include <string_view>

#include "common/base/log.h"

namespace millrace::rpc {
namespace {

void ForwardLog(gpr_log_func_args* args) {
  const std::string_view file(args->file);
  Log(args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug, "grpc",
      {{"message", args->message}, {"file", file.substr(file.rfind('/') + 1)}, {"line", args->line}});
}

}  // namespace

void SetUpGrpc() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function(ForwardLog); });
}

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials() { return grpc::InsecureChannelCredentials(); }
std::shared_ptr<grpc::ServerCredentials> ListenerCredentials() { return grpc::InsecureServerCredentials(); }

}  // namespace millrace::rpc
