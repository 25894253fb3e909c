#include "common/api/error_body.h"

#include "common/api/json.h"
#include "common/gateway/error_table.h"

namespace millrace::api {

namespace {

constexpr uint32_t kDefaultRetryAfterMs = 1000;

std::string Render(std::string_view message, std::string_view type, const std::string& param, const char* code) {
  std::string cut(message.substr(0, kMaxErrorMessageBytes));
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(out, cut);
  out += ",\"type\":";
  AppendJsonString(out, type);
  out += ",\"param\":";
  if (param.empty()) {
    out += "null";
  } else {
    AppendJsonString(out, std::string_view(param).substr(0, 200));
  }
  out += ",\"code\":";
  if (code == nullptr) {
    out += "null";
  } else {
    AppendJsonString(out, code);
  }
  return out + "}}";
}

}  // namespace

std::string ErrorBody(const Status& status) {
  const gateway::ErrorRow& row = gateway::FindErrorRow(status);
  return Render(status.message(), row.type, status.param(), row.code);
}

int HttpStatus(const Status& status) { return gateway::FindErrorRow(status).http_status; }

std::vector<http::Header> ErrorHeaders(const Status& status) {
  std::vector<http::Header> headers = {{"Content-Type", "application/json"}};
  int http_status = HttpStatus(status);
  if (http_status == 429 || http_status == 503) {
    uint32_t ms = status.retry_after_ms().value_or(kDefaultRetryAfterMs);
    headers.push_back({"Retry-After", std::to_string((ms + 999) / 1000)});
    headers.push_back({"Retry-After-Ms", std::to_string(ms)});
  }
  if (http_status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  return headers;
}

http::ErrorBody RenderHttpError(int status, const std::string& message) {
  const char* type = status >= 500 ? "server_error" : "invalid_request_error";
  return {"application/json", Render(message, type, "", nullptr)};
}

}  // namespace millrace::api
