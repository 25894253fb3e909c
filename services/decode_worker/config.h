#pragma once

#include "common/runtime/decode_runtime.h"
#include "services/worker/config.h"

namespace millrace::decode_worker {

struct Config {
  worker::WorkerConfig worker;
  runtime::DecodeOptions runtime;

  void Describe(config::Schema& schema);
};

}  // namespace millrace::decode_worker
