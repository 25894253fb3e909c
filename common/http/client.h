#pragma once
// A blocking HTTP/1.1 client for tools: one connection to one server, kept open between requests. Not thread-safe; an
// object per thread. Starts no threads.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"
#include "common/http/message.h"

namespace millrace::http {

struct ClientOptions {
  Duration connect_timeout = Seconds(3);
  Duration idle_timeout = Seconds(60);  // without a byte either way
  size_t max_body_bytes = 64 * 1024 * 1024;
};

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";
  std::vector<Header> headers;  // Host and Content-Length are the client's to set
  std::string body;
};

struct ClientResponse {
  int status = 0;
  std::vector<Header> headers;  // names in lower case, in order
  std::string body;
  std::string_view HeaderValue(std::string_view name) const;  // "" when absent
};

// "http://host[:port][/...]" or "host:port"; kInvalidArgument says what is wrong. The path is dropped.
struct Endpoint {
  std::string host;
  uint16_t port = 80;
};
StatusOr<Endpoint> ParseEndpoint(std::string_view url);

class Client {
 public:
  explicit Client(Endpoint endpoint, ClientOptions options = {});
  ~Client();
  Client(Client&&) noexcept;

  // Any answer of the server is OK here, whatever its status. kUnavailable: cannot connect, or cut before the end.
  // kDeadlineExceeded: silent for the idle timeout. kResourceExhausted: the body is too big. kInternal: not HTTP.
  StatusOr<ClientResponse> Send(const ClientRequest& request);

  // Hands the body of an answer with status 2xx to `on_data` as it comes, in the calling thread; false from it ends the
  // connection and the call returns what it has, with OK. Other answers come back with their body.
  StatusOr<ClientResponse> Stream(const ClientRequest& request, const std::function<bool(std::string_view)>& on_data);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace::http
