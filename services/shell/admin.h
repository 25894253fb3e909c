#pragma once
// The admin HTTP server of a process: GET /healthz (the control loop answers), /readyz (200 or 503 with the phase),
// /metrics (Prometheus text), /statusz (JSON).

#include <functional>
#include <memory>
#include <string>

#include "common/base/executor.h"
#include "common/base/status.h"
#include "common/http/server.h"

namespace millrace::shell {

// Each is called on the control executor.
struct AdminSources {
  std::function<bool()> ready;
  std::function<std::string()> phase;
  std::function<std::string()> metrics;
  std::function<std::string()> status_json;
};

StatusOr<std::unique_ptr<http::Server>> StartAdminServer(const std::string& host, uint16_t port, Executor& control,
                                                         AdminSources sources);

}  // namespace millrace::shell
