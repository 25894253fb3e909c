#pragma once

#include <string>

#include "common/runtime/prefill_runtime.h"
#include "services/worker/config.h"

namespace millrace::prefill_worker {

struct Config {
  worker::WorkerConfig worker;
  std::string decode_balancers;
  runtime::PrefillOptions runtime;

  void Describe(config::Schema& schema);
};

}  // namespace millrace::prefill_worker
