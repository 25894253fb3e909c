#pragma once
// Settings that prefill and decode workers share.

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/config/schema.h"
#include "common/peer/protocols.h"
#include "services/shell/transport_flags.h"

namespace millrace::worker {

struct WorkerConfig {
  std::string model;
  std::string served_model_name;  // empty = the file's stem
  std::string cache_dir;          // empty = the user's cache folder
  uint32_t threads = 0;
  uint32_t context = 0;
  std::string isa = "auto";
  config::Bytes kv_memory{uint64_t{512} << 20};
  std::string balancers;  // comma lists of host:port
  std::string stores;
  shell::TransportFlags transport;
  peer::Liveness liveness;

  void Describe(config::Schema& schema);
  Status Validate() const;
  std::string ModelName() const;
};

}  // namespace millrace::worker
