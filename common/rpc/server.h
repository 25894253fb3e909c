#pragma once
// The server side of peer streams over gRPC, with the standard health service (grpc.health.v1) beside them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/executor.h"
#include "common/base/status.h"
#include "common/base/time.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"

namespace millrace::rpc {

struct ServerOptions {
  size_t max_streams = 16384;                 // open at once; more are refused with kResourceExhausted/kOverloaded
  Duration keepalive_interval = Seconds(10);  // pings a connection that has streams and is silent
  Duration keepalive_deadline = Seconds(10);  // no answer by then: the connection is lost
};

// Thread-safe, except that AddService and Start are called by one thread. Services and executors outlive the server.
//
// What a server stream's on_closed reports: OK when the client said with Close(OK) that it sent all;
// kCancelled/kPeerLost when the client cancelled or its connection was lost (gRPC does not tell them apart);
// kInvalidArgument when the client sent a malformed message; else the status that the server's side closed with.
class Server {
 public:
  explicit Server(const ServerOptions& options = {});
  ~Server();  // Shutdown(Duration(0))
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Before Start; each protocol of common/peer/protocols.h at most once.
  template <class Protocol>
  void AddService(peer::Service<Protocol>& service, Executor& executor);

  // Listens on `host` (an address or name of this machine) and `port` (0 = any free one); returns the port. Fails when
  // the port is in use or the host is not of this machine. Once; the health service answers NOT_SERVING until
  // SetServing(true).
  StatusOr<uint16_t> Start(const std::string& host, uint16_t port);

  // What the health service says; also wakes its watchers.
  void SetServing(bool serving);

  // Refuses new streams, gives the open ones `grace` to end, cancels the rest and waits for that. Afterwards nothing is
  // posted for any stream but what was posted before. Idempotent. May be called from an executor of a service only with
  // a grace of 0, since open streams end through it.
  void Shutdown(Duration grace);

  size_t open_streams() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace::rpc
