#include "services/cli/process_status.h"

#include <nlohmann/json.hpp>

#include "common/http/client.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

bool Flag(const Json& json, const char* key) { return json.contains(key) && json[key] == true; }
std::string Text(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}
uint16_t Port(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number_unsigned() ? json[key].get<uint16_t>() : 0;
}

}  // namespace

ProcessStatus FetchStatus(const std::string& host, uint16_t admin_port) {
  ProcessStatus status;
  http::Client client({host, admin_port}, {.connect_timeout = Milliseconds(500), .idle_timeout = Milliseconds(500)});
  const auto response = client.Send({.target = "/statusz"});
  if (!response.ok() || response->status != 200) return status;
  const Json json = Json::parse(response->body, nullptr, false);
  if (!json.is_object()) return status;
  status.reachable = true;
  status.ready = Flag(json, "ready");
  status.draining = Flag(json, "draining");
  status.phase = Text(json, "phase");
  status.incarnation = Text(json, "incarnation");
  status.grpc_port = Port(json, "grpc_port");
  status.admin_port = Port(json, "admin_port");
  status.http_port = Port(json, "http_port");
  if (const auto load = json.find("load"); load != json.end() && load->is_object()) {
    for (const auto& [key, value] : load->items()) status.load.emplace_back(key, value.dump());
  }
  return status;
}

}  // namespace millrace::cli
