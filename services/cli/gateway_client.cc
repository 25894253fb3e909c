#include "services/cli/gateway_client.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/http/sse_reader.h"
#include "services/cli/state_folder.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::json;

// A step into an object or array; a null value where there is none.
const Json& At(const Json& json, const char* key) {
  static const Json null;
  if (!json.is_object()) return null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}
const Json& First(const Json& json) {
  static const Json null;
  return json.is_array() && !json.empty() ? json[0] : null;
}
std::string Text(const Json& json) { return json.is_string() ? json.get<std::string>() : std::string(); }
uint64_t Number(const Json& json) { return json.is_number_unsigned() ? json.get<uint64_t>() : 0; }

Code CodeOf(int http_status) {
  switch (http_status) {
    case 400:
    case 413:
      return Code::kInvalidArgument;
    case 401:
      return Code::kUnauthenticated;
    case 404:
      return Code::kNotFound;
    case 429:
      return Code::kResourceExhausted;
    case 503:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

Status ApiError(Code code, std::string place, const Json& body) {
  std::string message = Text(At(At(body, "error"), "message"));
  if (message.empty()) message = "the gateway failed the request without a message";
  return Status(code, std::move(message)).WithParam(std::move(place));
}

Status HttpError(int http_status, const Json& body) {
  return ApiError(CodeOf(http_status), "HTTP " + std::to_string(http_status), body);
}

void ReadChunk(const Json& chunk, Answer& answer, std::string& text) {
  const Json& choice = First(At(chunk, "choices"));
  text = Text(At(choice, "text"));
  if (text.empty()) text = Text(At(At(choice, "delta"), "content"));
  if (const Json& reason = At(choice, "finish_reason"); reason.is_string()) answer.finish_reason = Text(reason);
  if (const Json& usage = At(chunk, "usage"); usage.is_object()) {
    answer.usage = Usage{Number(At(usage, "prompt_tokens")), Number(At(usage, "completion_tokens")),
                         Number(At(At(usage, "prompt_tokens_details"), "cached_tokens"))};
  }
}

}  // namespace

GatewayClient::GatewayClient(http::Endpoint endpoint, std::string api_key)
    : client_(std::move(endpoint)), api_key_(std::move(api_key)) {}

std::vector<http::Header> GatewayClient::Headers() const {
  std::vector<http::Header> headers{{"Content-Type", "application/json"}};
  if (!api_key_.empty()) headers.push_back({"Authorization", "Bearer " + api_key_});
  return headers;
}

StatusOr<std::string> GatewayClient::ChooseModel(const std::string& wanted) {
  const StatusOr<http::ClientResponse> response = client_.Send({.target = "/v1/models", .headers = Headers()});
  if (!response.ok()) return response.status().Annotate("is a cluster running? (millrace status, millrace up)");
  const Json json = Json::parse(response->body, nullptr, false);
  if (response->status == 401) {
    return Status(Code::kUnauthenticated, std::string(api_key_.empty() ? "the gateway wants an API key"
                                                                       : "the gateway does not know this API key") +
                                              ": give --api-key-file FILE, whose first key is sent");
  }
  if (response->status != 200) return HttpError(response->status, json);
  if (!wanted.empty()) return wanted;
  std::string first = Text(At(First(At(json, "data")), "id"));
  if (first.empty()) return NotFound("the gateway serves no model yet");
  return first;
}

StatusOr<Answer> GatewayClient::Stream(const std::string& target, const std::string& body,
                                       const std::function<bool(std::string_view text)>& on_text) {
  Answer answer;
  Status failure;
  bool done = false;
  http::SseReader reader;
  const auto on_event = [&](std::string_view data) {
    if (data == "[DONE]") {
      done = true;
      return true;
    }
    const Json chunk = Json::parse(data, nullptr, false);
    if (At(chunk, "error").is_object()) {
      failure = ApiError(Code::kInternal, "in the stream", chunk);
      return false;
    }
    std::string text;
    ReadChunk(chunk, answer, text);
    if (text.empty()) return true;
    answer.text += text;
    if (on_text(text)) return true;
    done = true;
    return false;
  };
  MR_ASSIGN_OR_RETURN(const http::ClientResponse response,
                      client_.Stream({.method = "POST", .target = target, .headers = Headers(), .body = body},
                                     [&](std::string_view piece) { return reader.Feed(piece, on_event); }));
  if (response.status / 100 != 2) {
    return HttpError(response.status, Json::parse(response.body, nullptr, false));
  }
  if (!failure.ok()) return failure;
  if (!done) return Status(Code::kUnavailable, Reason::kPeerLost, "the stream ended without [DONE]");
  return answer;
}

StatusOr<http::Endpoint> FindGateway(const std::string& url, const std::string& name) {
  if (!url.empty()) return http::ParseEndpoint(url);
  MR_ASSIGN_OR_RETURN(const StateFolder folder, StateFolder::Locate(name));
  const StatusOr<ClusterRecord> record = folder.Read();
  const std::string how = "; `millrace up` starts one, --url http://HOST:PORT names a gateway elsewhere";
  if (!record.ok()) return Status(record.status().code(), record.status().message() + how);
  if (!IsAlive(record->supervisor)) return NotFound("the cluster '" + name + "' was killed" + how);
  if (record->endpoint.empty())
    return Unavailable("the cluster '" + name + "' is still starting; see `millrace status`");
  return http::ParseEndpoint(record->endpoint);
}

StatusOr<std::string> ReadApiKey(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.find_last_not_of(" \t\r");
    if (end != std::string::npos && line[0] != '#') return line.substr(0, end + 1);
  }
  return NotFound("there is no API key in " + path + " (--api-key-file)");
}

}  // namespace millrace::cli
