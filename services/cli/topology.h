#pragma once
// Which processes a local cluster has, in what order they start, and with which flags. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"
#include "common/config/schema.h"

namespace millrace::cli {

// Settings of `millrace up`. Text and sizes that are empty and numbers that are 0 leave a process its own default, but
// for store_guarantee_hours: a full store of one machine takes new blocks.
struct UpConfig {
  std::string name = "default";
  std::string model;
  std::string served_model_name;
  std::string api_key_file;
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  uint32_t prefill = 2;
  uint32_t decode = 2;
  uint32_t store = 1;
  uint32_t balancers = 2;
  uint32_t threads = 0;
  uint32_t context = 0;
  std::string isa = "auto";
  std::optional<config::Bytes> kv_memory;
  std::optional<config::Bytes> store_capacity;
  std::optional<config::Bytes> store_min_free;
  uint32_t store_guarantee_hours = 0;
  std::string policy;
  std::string log_level = "info";
  Duration drain_timeout = Seconds(10);
  Duration start_timeout = Seconds(600);
  bool allow_anonymous = false;
  bool detach = false;

  void Describe(config::Schema& schema);
  Status Validate() const;
};

// Start order: a process needs the addresses of those of earlier stages.
enum class Stage : uint8_t { kFirst, kSecond };

struct ProcessPlan {
  std::string name;     // "prefill-0"
  std::string role;     // "prefill", as cluster::RoleName
  std::string program;  // "millrace-prefill-worker"
  Stage stage = Stage::kFirst;
};
std::vector<ProcessPlan> PlanProcesses(const UpConfig& config);

// Ports that a process had before, to be had again; 0 = any.
struct PortRequest {
  uint16_t grpc = 0;
  uint16_t admin = 0;
  uint16_t http = 0;
};

struct LaunchContext {
  std::map<std::string, std::vector<std::string>> addresses;  // role -> gRPC host:port of its processes
  std::string ready_file;
  std::string store_path;
  PortRequest ports;
};
std::vector<std::string> Arguments(const ProcessPlan& plan, const UpConfig& config, const LaunchContext& context);

// Where to reach a server that listens on `host`: itself, or loopback when it listens everywhere.
std::string ReachableHost(const std::string& host);

// $XDG_CACHE_HOME/millrace/models/smollm2-135m-instruct.gguf, or below ~/.cache; empty when neither variable is set.
std::string DefaultModelPath();

}  // namespace millrace::cli
