#pragma once
// What an HTTP handler sees: a whole request, and the responder that answers it once.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/random.h"

namespace millrace::http {

// The prefix and 96 random bits in hex: "req_...".
std::string NewId(Rng& rng, std::string_view prefix);

struct Header {
  std::string name;
  std::string value;
};

struct Request {
  std::string id;               // "req_...", of the server; the answer has it as X-Request-Id and Request-Id
  std::string method;           // "POST", as sent
  std::string path;             // target up to '?', not decoded
  std::string query;            // after '?', not decoded; empty when absent
  std::vector<Header> headers;  // names in lower case, in order
  std::string body;             // whole, within ServerOptions::max_body_bytes
  std::string remote_address;   // "127.0.0.1:50000"

  // Value of the first header of that name (given in lower case), "" when absent.
  std::string_view HeaderValue(std::string_view name) const;
  bool HasHeader(std::string_view name) const;
};

// Answers one request: either Send once, or StartStream, any Writes, End. Used only on the server's handler executor;
// never blocks. Destroyed before it was finished: an unstarted answer becomes 500, a started stream is cut so that the
// client sees it is incomplete. Content-Length, Transfer-Encoding, Connection, Date, X-Request-Id and Request-Id are
// the server's to set.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual void Send(int status, std::vector<Header> headers, std::string body) = 0;
  virtual void StartStream(int status, std::vector<Header> headers) = 0;
  // Whole frames; `chunk` is sent as it is. Ignored after the client went away. A client that lets more than
  // ServerOptions::max_stream_pending_bytes wait is disconnected.
  virtual void Write(std::string chunk) = 0;
  virtual void End() = 0;

  // Bytes given to this responder that the kernel has not taken yet.
  virtual size_t pending_bytes() const = 0;
  // `callback` runs once, on the executor, if the client goes away (or is cut off) before the answer was complete; at
  // once (as a later task) when that already happened. Never after the responder was destroyed.
  virtual void OnDisconnect(std::function<void()> callback) = 0;
};

using Handler = std::function<void(Request, std::unique_ptr<Responder>)>;

std::string_view ReasonPhrase(int status);  // "Not Found"

}  // namespace millrace::http
