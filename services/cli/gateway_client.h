#pragma once
// The cluster's HTTP API as the terminal tools use it. One connection; not thread-safe.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/http/client.h"

namespace millrace::cli {

struct Usage {
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;
};

struct Answer {
  std::string text;
  std::string finish_reason;  // empty when it was cut
  std::optional<Usage> usage;
};

class GatewayClient {
 public:
  // `api_key` empty = none is sent.
  GatewayClient(http::Endpoint endpoint, std::string api_key);

  // `wanted`, or when that is empty the first model that the gateway lists. Asks in either case: an error says whether
  // the gateway is away or wants another API key.
  StatusOr<std::string> ChooseModel(const std::string& wanted);

  // POSTs a request with "stream": true and hands each piece of text on as it comes; false from `on_text` ends it. An
  // error of the API, before or within the stream, is the status: its message, and as param() "HTTP 503" or "in the
  // stream".
  StatusOr<Answer> Stream(const std::string& target, const std::string& body,
                          const std::function<bool(std::string_view text)>& on_text);

 private:
  std::vector<http::Header> Headers() const;
  http::Client client_;
  const std::string api_key_;
};

// --url, or when that is empty the endpoint of the local cluster `name`. kNotFound when no such cluster runs.
StatusOr<http::Endpoint> FindGateway(const std::string& url, const std::string& name);
// The first key of the file, whose empty lines and lines of # are none; "" for an empty path.
StatusOr<std::string> ReadApiKey(const std::string& path);

}  // namespace millrace::cli
