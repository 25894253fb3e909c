#pragma once
// Settings of millrace-gateway beside those that every process has.

#include <string>

#include "common/api/frontend.h"
#include "common/base/status.h"
#include "common/config/schema.h"
#include "common/http/server.h"
#include "common/runtime/gateway_runtime.h"

namespace millrace::gateway_service {

struct Config {
  std::string api_host;  // empty = that of the process
  uint16_t port = 8080;
  std::string model;
  std::string served_model_name;
  std::string cache_dir;  // empty = the user's cache folder
  std::string prefill_balancers;
  std::string decode_balancers;
  std::string api_key_file;
  bool allow_anonymous = false;
  uint32_t max_requests = 1024;
  uint32_t max_connections = 8192;
  config::Bytes max_body{32u << 20};
  Duration event_silence = Seconds(15);
  uint32_t most_reentries_at_once = 64;
  gateway::RequestRules rules;
  peer::Liveness liveness;

  void Describe(config::Schema& schema);
  // `host` is that of the process.
  Status Validate(const std::string& host) const;

  std::string ModelName() const;  // what clients call it
  // Where the API listens in a process of that --host.
  const std::string& ApiHost(const std::string& host) const { return api_host.empty() ? host : api_host; }
  http::ServerOptions ServerOptions(const std::string& host) const;
  StatusOr<api::FrontendOptions> FrontendOptions() const;  // reads the key file
  runtime::GatewayOptions GatewayOptions(std::shared_ptr<const recipe::ModelRecipe> recipe,
                                         std::string model_digest) const;
};

}  // namespace millrace::gateway_service
