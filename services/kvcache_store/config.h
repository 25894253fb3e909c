#pragma once
// The kvcache-store's settings.

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/config/schema.h"
#include "common/runtime/store_runtime.h"
#include "common/store/tier.h"
#include "services/shell/transport_flags.h"

namespace millrace::kvcache_store {

struct Config {
  std::string path;
  config::Bytes capacity{10ull << 30};
  config::Bytes min_free{2ull << 30};
  bool fsync = false;
  uint32_t chat_hours = 168;
  uint32_t agent_hours = 72;
  uint32_t guarantee_hours = 72;
  std::string retention = "chat";
  config::Bytes read_memory{256ull << 20};
  config::Bytes staging_memory{128ull << 20};
  uint32_t readers = 2;
  shell::TransportFlags transport;
  runtime::StoreRuntimeOptions runtime;

  void Describe(config::Schema& schema);
  Status Validate() const;
  store::TierOptions Tier() const;
  runtime::StoreRuntimeOptions Runtime() const;
};

}  // namespace millrace::kvcache_store
