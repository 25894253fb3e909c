#include "common/scheduler/admission.h"

#include <algorithm>
#include <string>

namespace millrace::scheduler {
namespace {

constexpr double kLeastRetryMs = 100;
constexpr double kMostRetryMs = 10000;
constexpr double kRetryMsUnmeasured = 1000;

}  // namespace

Status AdmitToQueue(const QueueLimits& limits, const QueueLoad& load, uint64_t tokens) {
  const bool fits_tokens = load.tokens + tokens <= limits.most_tokens || load.requests == 0;
  if (load.requests < limits.most_requests && fits_tokens) return OkStatus();
  double ms = kRetryMsUnmeasured;
  if (load.tokens_per_second > 0) ms = 0.5 * 1e3 * static_cast<double>(load.tokens) / load.tokens_per_second;
  return Status(Code::kResourceExhausted, Reason::kOverloaded,
                "queue full: " + std::to_string(load.requests) + " requests with " + std::to_string(load.tokens) +
                    " tokens wait")
      .WithRetryAfterMs(static_cast<uint32_t>(std::clamp(ms, kLeastRetryMs, kMostRetryMs)));
}

}  // namespace millrace::scheduler
