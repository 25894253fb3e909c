#include "common/runtime/gateway_metrics.h"

namespace millrace::runtime {

namespace {

const std::vector<double> kSecondsBounds = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60};
const std::vector<double> kTokenBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1};
const char* kOutcomes[] = {"stop", "length", "cancelled", "error"};

}  // namespace

GatewayMetrics::GatewayMetrics(MetricRegistry& r)
    : registry(r),
      active_requests(r.AddGauge("millrace_gateway_active_requests", "Requests that have not ended.")),
      open_streams(r.AddGauge("millrace_gateway_open_streams", "Streams to balancers and workers, for requests.")),
      reentries_active(r.AddGauge("millrace_gateway_reentries_active", "Requests that look for a new worker now.")),
      reentries_waiting(r.AddGauge("millrace_gateway_reentries_waiting", "Requests that wait to look for one.")),
      reentries_failed(r.AddCounter("millrace_gateway_reentries_total", "Re-entries of requests, by cause.",
                                    {{"cause", "failure"}})),
      reentries_free(r.AddCounter("millrace_gateway_reentries_total", "Re-entries of requests, by cause.",
                                  {{"cause", "eviction_or_drain"}})),
      prompt_tokens(r.AddCounter("millrace_gateway_prompt_tokens_total", "Prompt tokens of requests that ended.")),
      completion_tokens(r.AddCounter("millrace_gateway_completion_tokens_total", "Tokens given to clients.")),
      cached_tokens(r.AddCounter("millrace_gateway_cached_tokens_total", "Prompt tokens that were not computed.")),
      first_token_seconds(r.AddHistogram("millrace_gateway_first_token_seconds",
                                         "From a request's start to its first token (TTFT).", kSecondsBounds)),
      token_seconds(r.AddHistogram("millrace_gateway_token_seconds",
                                   "Mean time of a token after the first, one value a request (TPOT).", kTokenBounds)),
      request_seconds(
          r.AddHistogram("millrace_gateway_request_seconds", "From a request's start to its end.", kSecondsBounds)) {
  for (const char* outcome : kOutcomes) Outcome(outcome);
}

Counter& GatewayMetrics::Outcome(const std::string& outcome) {
  return registry.AddCounter("millrace_gateway_requests_total", "Requests that ended, by how.", {{"outcome", outcome}});
}

}  // namespace millrace::runtime
