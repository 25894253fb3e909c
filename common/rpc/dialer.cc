#include "common/rpc/dialer.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "common/rpc/call.h"
#include "common/rpc/codec.h"
#include "common/rpc/environment.h"
#include "common/rpc/typed_stream.h"

namespace millrace::rpc {
namespace {

int ArgMs(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

grpc::ChannelArguments MakeArguments(const DialOptions& options) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, ArgMs(options.connect_deadline));
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, ArgMs(options.reconnect_backoff));
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, ArgMs(options.reconnect_backoff_max));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, ArgMs(options.keepalive_interval));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ArgMs(options.keepalive_deadline));
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  args.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, ArgMs(options.unused_connection_lifetime));
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);  // no inflation bombs
  return args;
}

// Channels by address. gRPC connects channels with equal arguments to one address through one connection.
class Channels {
 public:
  explicit Channels(const DialOptions& options) : options_(options) {}

  std::shared_ptr<grpc::Channel> Get(const std::string& address, TimePoint now) {
    const std::lock_guard lock(mutex_);
    for (auto it = channels_.begin(); it != channels_.end();) {
      const bool unused = it->second.channel.use_count() == 1 && it->first != address;
      if (!unused) it->second.last_used = now;
      it = now - it->second.last_used > options_.unused_connection_lifetime ? channels_.erase(it) : std::next(it);
    }
    Entry& entry = channels_[address];
    if (entry.channel == nullptr) {
      entry.channel = grpc::CreateCustomChannel(address, ClientCredentials(), MakeArguments(options_));
    }
    entry.last_used = now;
    return entry.channel;
  }

 private:
  struct Entry {
    std::shared_ptr<grpc::Channel> channel;
    TimePoint last_used{};
  };

  const DialOptions options_;
  std::mutex mutex_;
  std::map<std::string, Entry> channels_;  // guarded by mutex_
};

template <class Protocol>
class GrpcDialer final : public peer::Dialer<Protocol> {
 public:
  GrpcDialer(Executor& executor, const DialOptions& options) : executor_(executor), channels_(options) {}

  std::unique_ptr<peer::ClientStream<Protocol>> Open(const std::string& address,
                                                     peer::StreamHandler<typename Protocol::Down> handler) override {
    auto receiver = std::make_shared<TypedReceiver<typename Protocol::Down>>(std::move(handler));
    return std::make_unique<TypedStream<typename Protocol::Up>>(
        StartClientCall(channels_.Get(address, executor_.Now()), MethodName(Protocol::kName), executor_, receiver));
  }

 private:
  Executor& executor_;
  Channels channels_;
};

}  // namespace

template <class Protocol>
std::unique_ptr<peer::Dialer<Protocol>> MakeDialer(Executor& executor, const DialOptions& options) {
  SetUpGrpc();
  return std::make_unique<GrpcDialer<Protocol>>(executor, options);
}

template std::unique_ptr<peer::Dialer<peer::DecodeProtocol>> MakeDialer(Executor&, const DialOptions&);
template std::unique_ptr<peer::Dialer<peer::HandoffProtocol>> MakeDialer(Executor&, const DialOptions&);
template std::unique_ptr<peer::Dialer<peer::PickProtocol>> MakeDialer(Executor&, const DialOptions&);
template std::unique_ptr<peer::Dialer<peer::PrefillProtocol>> MakeDialer(Executor&, const DialOptions&);
template std::unique_ptr<peer::Dialer<peer::ReportProtocol>> MakeDialer(Executor&, const DialOptions&);
template std::unique_ptr<peer::Dialer<peer::StoreProtocol>> MakeDialer(Executor&, const DialOptions&);
template std::unique_ptr<peer::Dialer<peer::WatchProtocol>> MakeDialer(Executor&, const DialOptions&);

}  // namespace millrace::rpc
