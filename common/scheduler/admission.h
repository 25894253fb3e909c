#pragma once
// The bound in front of a worker: how many requests and tokens may wait, and when to come back. Pure.

#include <cstdint>

#include "common/base/status.h"

namespace millrace::scheduler {

struct QueueLimits {
  uint32_t most_requests = 64;
  uint64_t most_tokens = 65536;  // one request longer than this may still wait alone
};

struct QueueLoad {
  uint32_t requests = 0;
  uint64_t tokens = 0;
  double tokens_per_second = 0;  // 0 = not measured yet
};

// OK, or kResourceExhausted(kOverloaded) with the time after which half of the queue should be done.
Status AdmitToQueue(const QueueLimits& limits, const QueueLoad& load, uint64_t tokens);

}  // namespace millrace::scheduler
