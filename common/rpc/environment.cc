#include "common/rpc/environment.h"

#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <string_view>

#include "common/base/log.h"

namespace millrace::rpc {
namespace {

void ForwardLog(gpr_log_func_args* args) {
  const std::string_view file(args->file);
  Log(args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug, "grpc",
      {{"message", args->message}, {"file", file.substr(file.rfind('/') + 1)}, {"line", args->line}});
}

// gRPC runs callbacks on threads that it ends and joins when the last server or channel using them goes; when that
// channel goes on one of these very threads (the end of a call whose dialer is gone), it joins itself and frees its
// queue twice. A server without a port, which is never destroyed, keeps them.
grpc::Server* KeepCallbackThreads() {
  static auto* const nothing = new grpc::CallbackGenericService;
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(nothing);
  return builder.BuildAndStart().release();
}

}  // namespace

void SetUpGrpc() {
  static const grpc::Server* const keeper = [] {
    gpr_set_log_function(ForwardLog);
    return KeepCallbackThreads();
  }();
  static_cast<void>(keeper);
}

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials() { return grpc::InsecureChannelCredentials(); }
std::shared_ptr<grpc::ServerCredentials> ListenerCredentials() { return grpc::InsecureServerCredentials(); }

}  // namespace millrace::rpc
