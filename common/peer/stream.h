#pragma once
// Streams between services, as runtimes see them: typed messages both ways, no RPC library in sight. A protocol is a
// struct with `Up` (client to server), `Down` (server to client) and `kName`. Implementations: common/rpc over gRPC,
// and an in-process one for tests.
//
// Threads: everything below happens on the executor given at Open / Serve. Handlers may destroy their own stream.
// Flow: the next incoming message is read after the handler of the last one returned. Outgoing messages queue; a stream
// whose peer stops reading closes with kResourceExhausted once kMaxPendingSends are waiting. End: on_closed is called
// exactly once, last, unless the stream object was destroyed before; after destruction no handler runs. A closed stream
// ignores Send.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/base/executor.h"
#include "common/base/status.h"

namespace millrace::peer {

constexpr size_t kMaxPendingSends = 1024;

template <class Out>
class Stream {
 public:
  virtual ~Stream() = default;  // a client's stream is cancelled, a server's ends with kCancelled, unless closed before
  virtual void Send(Out message) = 0;
  // Server: ends the stream with `status` after all that was sent. Client: OK says that no more will be sent (the
  // server still may); anything else cancels. Sends after it are ignored.
  virtual void Close(Status status) = 0;
  virtual size_t pending_sends() const = 0;
};

template <class In>
struct StreamHandler {
  std::function<void(In)> on_message;
  // OK: the server ended it well (client side) or the client finished sending (server side). kUnavailable with
  // kPeerLost: the connection failed or could not be made. Otherwise the status the server closed with, reason
  // included.
  std::function<void(Status)> on_closed;
};

template <class Protocol>
using ClientStream = Stream<typename Protocol::Up>;
template <class Protocol>
using ServerStream = Stream<typename Protocol::Down>;

// Opens streams of one protocol. Thread-safe as one object per executor.
template <class Protocol>
class Dialer {
 public:
  virtual ~Dialer() = default;
  // `address` is host:port (host may be a DNS name). Never blocks; a failure arrives through on_closed.
  virtual std::unique_ptr<ClientStream<Protocol>> Open(const std::string& address,
                                                       StreamHandler<typename Protocol::Down> handler) = 0;
};

// Serves streams of one protocol. Accept is called on the service's executor for each new stream; it keeps the stream
// and returns the handler of what comes in.
template <class Protocol>
class Service {
 public:
  virtual ~Service() = default;
  virtual StreamHandler<typename Protocol::Up> Accept(std::unique_ptr<ServerStream<Protocol>> stream) = 0;
};

}  // namespace millrace::peer
