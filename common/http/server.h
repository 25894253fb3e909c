#pragma once
// An HTTP/1.0 and 1.1 server: keep-alive, pipelining (one request of a connection at a time, in order), chunked request
// bodies, Expect: 100-continue, streamed answers. What it refuses itself: 400 malformed, 408 too slow, 413 body too
// big, 417, 431 headers too big, 501 unknown transfer coding, 503 too many connections. Every answer has an
// id of its request.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/executor.h"
#include "common/base/status.h"
#include "common/base/time.h"
#include "common/http/message.h"

namespace millrace::http {

// Body of an answer that the server or the router makes itself.
struct ErrorBody {
  std::string content_type;
  std::string body;
};
using ErrorRenderer = std::function<ErrorBody(int status, const std::string& message)>;
ErrorBody PlainTextError(int status, const std::string& message);

struct ServerOptions {
  std::string host = "127.0.0.1";  // address or name to listen on; "0.0.0.0" or "::" for all
  uint16_t port = 0;               // 0 = any free one
  uint32_t io_threads = 1;
  uint32_t max_connections = 8192;
  size_t max_header_bytes = 64 * 1024;
  size_t max_body_bytes = 32 * 1024 * 1024;
  size_t max_stream_pending_bytes = 1024 * 1024;
  Duration header_timeout = Seconds(15);      // from a request's first byte to the end of its headers
  Duration body_timeout = Seconds(60);        // from there to the end of its body
  Duration keep_alive_timeout = Seconds(75);  // silence between requests
  Duration write_timeout = Seconds(30);       // without the client taking a byte that waits for it
  ErrorRenderer render_error = PlainTextError;
};

// Whether who listens on `host` can be reached from this machine alone.
bool IsLoopback(const std::string& host);

class Server {
 public:
  // Binds, listens and starts its threads. `handler` runs on `executor`, which must outlive the server. Fails with the
  // address in the message when it is in use or unknown.
  static StatusOr<std::unique_ptr<Server>> Listen(ServerOptions options, Executor& executor, Handler handler);
  virtual ~Server() = default;  // Stop()

  virtual uint16_t port() const = 0;
  virtual std::string address() const = 0;  // "127.0.0.1:8080"
  virtual size_t connections() const = 0;

  // Closes the listening socket and idle connections; answers under way go on, and close their connection at the end.
  virtual void StopAccepting() = 0;
  // Cuts every connection, joins the threads and calls no handler any more. Idempotent; from any thread but the
  // server's own. Responders still held become inert.
  virtual void Stop() = 0;
};

}  // namespace millrace::http
