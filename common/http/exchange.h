#pragma once
// Private to common/http: one request and its answer, between a connection's IO thread and the handler's executor.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/http/server.h"

namespace millrace::http {

// What all connections of a server share. `options`, `executor` and `handler` don't change.
struct ServerShared {
  ServerShared(ServerOptions o, Executor& e, Handler h) : options(std::move(o)), executor(e), handler(std::move(h)) {}
  const ServerOptions options;
  Executor& executor;
  const Handler handler;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopped{false};  // no handler is called any more
  std::atomic<size_t> connections{0};
  std::atomic<size_t> body_bytes{0};  // of requests that no handler has taken yet
};

// What answers are written to. Thread-safe.
class Connection {
 public:
  virtual ~Connection() = default;
  // Bytes of the answer under way; `last` ends it, then `keep_alive` says whether another may follow.
  virtual void Write(std::string bytes, bool last, bool keep_alive) = 0;
  virtual void Abort() = 0;  // cut now, whatever is still to be sent
  virtual size_t pending_bytes() const = 0;
  virtual const ServerShared& shared() const = 0;
};

// One request and its answer, as the handler's executor sees it.
struct Exchange {
  std::shared_ptr<Connection> connection;
  std::string request_id;
  bool keep_alive = false;  // the client's wish
  bool head = false;        // answer without a body
  bool chunked = false;     // the client can read chunked coding
  // On the executor only.
  bool finished = false;
  bool gone = false;
  std::function<void()> on_disconnect;

  void ClientGone();
};

std::unique_ptr<Responder> MakeResponder(std::shared_ptr<Exchange> exchange);

// Status line and headers, with Date, Connection and the request's id; framing headers are the caller's.
std::string FormatHead(int status, const std::vector<Header>& headers, const std::string& request_id, bool keep_alive);

}  // namespace millrace::http
