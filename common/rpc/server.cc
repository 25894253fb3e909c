#include "common/rpc/server.h"

#include <grpc/grpc.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "common/base/check.h"
#include "common/rpc/call.h"
#include "common/rpc/codec.h"
#include "common/rpc/environment.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/listen_error.h"
#include "common/rpc/typed_stream.h"

namespace millrace::rpc {
namespace {

int ArgMs(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// Ends a call that nobody serves.
class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

struct Registration {
  AcceptCall accept;
  Executor* executor;
};

// Hands new calls to the service of their method.
class Switchboard final : public grpc::CallbackGenericService {
 public:
  explicit Switchboard(size_t max_streams) : max_streams_(max_streams) {}

  void Add(std::string method, Registration registration) {
    MR_CHECK(services_.emplace(std::move(method), std::move(registration)).second);
  }
  size_t open_streams() const { return open_.load(std::memory_order_relaxed); }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    const auto service = services_.find(context->method());
    if (service == services_.end()) {
      return new Refusal({Code::kUnimplemented, "this process does not serve " + context->method()});
    }
    if (open_.fetch_add(1) >= max_streams_) {
      open_.fetch_sub(1);
      return new Refusal({Code::kResourceExhausted, Reason::kOverloaded,
                          "all " + std::to_string(max_streams_) + " streams of the server are in use"});
    }
    return StartServerCall(*context, service->second.accept, *service->second.executor, [this] { open_.fetch_sub(1); });
  }

  const size_t max_streams_;
  std::map<std::string, Registration, std::less<>> services_;  // fixed once serving
  std::atomic<size_t> open_{0};
};

std::string JoinHostPort(const std::string& host, uint16_t port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace

struct Server::State {
  explicit State(const ServerOptions& server_options) : options(server_options), calls(server_options.max_streams) {}

  const ServerOptions options;
  Switchboard calls;
  std::mutex mutex;
  std::unique_ptr<grpc::Server> server;  // guarded by mutex, but for its own thread-safe methods
  bool shut_down = false;                // guarded by mutex
};

Server::Server(const ServerOptions& options) : state_(std::make_unique<State>(options)) { SetUpGrpc(); }

Server::~Server() { Shutdown(Duration(0)); }

template <class Protocol>
void Server::AddService(peer::Service<Protocol>& service, Executor& executor) {
  AcceptCall accept = [&service](std::shared_ptr<Call> call) -> std::shared_ptr<Receiver> {
    return std::make_shared<TypedReceiver<typename Protocol::Up>>(
        service.Accept(std::make_unique<TypedStream<typename Protocol::Down>>(std::move(call))));
  };
  state_->calls.Add(MethodName(Protocol::kName), {std::move(accept), &executor});
}

StatusOr<uint16_t> Server::Start(const std::string& host, uint16_t port) {
  const std::lock_guard lock(state_->mutex);
  if (state_->server != nullptr || state_->shut_down) return FailedPrecondition("the server was started before");
  if (host.empty()) return InvalidArgument("cannot listen: the host is empty");
  const std::string address = JoinHostPort(host, port);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ArgMs(state_->options.keepalive_interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ArgMs(state_->options.keepalive_deadline));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);        // peers may ping as they like
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  builder.RegisterCallbackGenericService(&state_->calls);
  int bound_port = 0;
  builder.AddListeningPort(address, ListenerCredentials(), &bound_port);
  state_->server = builder.BuildAndStart();
  if (state_->server == nullptr) return ListenError(host, port);
  state_->server->GetHealthCheckService()->SetServingStatus(false);
  return static_cast<uint16_t>(bound_port);
}

void Server::SetServing(bool serving) {
  const std::lock_guard lock(state_->mutex);
  if (state_->server != nullptr && !state_->shut_down) {
    state_->server->GetHealthCheckService()->SetServingStatus(serving);
  }
}

void Server::Shutdown(Duration grace) {
  const std::lock_guard lock(state_->mutex);
  if (state_->server == nullptr || state_->shut_down) return;
  state_->shut_down = true;
  state_->server->Shutdown(std::chrono::system_clock::now() +
                           std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
}

size_t Server::open_streams() const { return state_->calls.open_streams(); }

template void Server::AddService(peer::Service<peer::DecodeProtocol>&, Executor&);
template void Server::AddService(peer::Service<peer::HandoffProtocol>&, Executor&);
template void Server::AddService(peer::Service<peer::PickProtocol>&, Executor&);
template void Server::AddService(peer::Service<peer::PrefillProtocol>&, Executor&);
template void Server::AddService(peer::Service<peer::ReportProtocol>&, Executor&);
template void Server::AddService(peer::Service<peer::StoreProtocol>&, Executor&);
template void Server::AddService(peer::Service<peer::WatchProtocol>&, Executor&);

}  // namespace millrace::rpc
