#pragma once
// The gateway's metrics. Each exists at 0 from the start.

#include <map>
#include <string>

#include "common/base/metrics.h"

namespace millrace::runtime {

struct GatewayMetrics {
  explicit GatewayMetrics(MetricRegistry& registry);

  Counter& Outcome(const std::string& outcome);  // millrace_gateway_requests_total{outcome}

  MetricRegistry& registry;
  Gauge& active_requests;
  Gauge& open_streams;
  Gauge& reentries_active;
  Gauge& reentries_waiting;
  Counter& reentries_failed;
  Counter& reentries_free;
  Counter& prompt_tokens;
  Counter& completion_tokens;
  Counter& cached_tokens;
  Histogram& first_token_seconds;
  Histogram& token_seconds;
  Histogram& request_seconds;
};

}  // namespace millrace::runtime
