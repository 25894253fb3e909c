#pragma once
// What all gRPC use of a process shares: its log output and its credentials.

#include <memory>

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace millrace::rpc {

// Before any other use of gRPC: sends its log lines to common/base/log as event "grpc" and keeps its callback threads
// for the life of the process. Idempotent, thread-safe.
void SetUpGrpc();

// The one place that decides how connections are secured.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials();
std::shared_ptr<grpc::ServerCredentials> ListenerCredentials();

}  // namespace millrace::rpc
