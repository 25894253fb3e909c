#pragma once
// What `millrace bench serve` sends, and what it makes of the answers. Pure: the same settings give the same requests.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"
#include "services/cli/gateway_client.h"

namespace millrace::cli {

struct LoadConfig {
  uint32_t requests = 64;
  double rate = 0;  // requests a second that arrive (Poisson); 0 = closed loop
  uint32_t prompt_tokens = 256;
  uint32_t output_tokens = 64;
  double length_spread = 0;   // lengths are uniform in [1 - spread, 1 + spread] times the above
  double prefix_share = 0.5;  // of a prompt's tokens, those that its prefix group has in common
  uint32_t prefix_groups = 1;
  uint32_t vocabulary = 32000;  // ids are drawn below it
  uint64_t seed = 1;
};

struct PlannedRequest {
  Duration arrival{0};  // since the start
  std::vector<int32_t> prompt;
  uint32_t output_tokens = 1;
};
std::vector<PlannedRequest> PlanLoad(const LoadConfig& config);

// "HTTP 503: <message>": where a request failed, and the first line of why, cut to what fits a terminal.
std::string ErrorLine(const Status& status);

struct Sample {
  std::string error;  // ErrorLine; empty = it ended well
  Duration first_token{0};
  Duration total{0};
  Usage usage;
};

// Of seconds.
struct Distribution {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Distribution Summarize(std::vector<double> values);

struct LoadReport {
  uint32_t requests = 0;
  uint32_t succeeded = 0;
  std::map<std::string, uint32_t> errors;  // by Sample::error
  double seconds = 0;
  Usage tokens;
  Distribution ttft;  // to the first token
  Distribution tpot;  // of each later token
  Distribution total;
  double RequestsPerSecond() const { return seconds > 0 ? succeeded / seconds : 0; }
  double OutputTokensPerSecond() const {
    return seconds > 0 ? static_cast<double>(tokens.completion_tokens) / seconds : 0;
  }
  double PromptTokensPerSecond() const { return seconds > 0 ? static_cast<double>(tokens.prompt_tokens) / seconds : 0; }
  double HitRate() const {
    return tokens.prompt_tokens > 0
               ? static_cast<double>(tokens.cached_tokens) / static_cast<double>(tokens.prompt_tokens)
               : 0;
  }
};
LoadReport MakeReport(const std::vector<Sample>& samples, Duration elapsed);
std::string ReportTable(const LoadReport& report);
std::string ReportJson(const LoadReport& report);

}  // namespace millrace::cli
