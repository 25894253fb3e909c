#include "services/cli/topology.h"

#include <cstdlib>

#include "common/cluster/instance.h"
#include "common/engine/cpu/isa.h"
#include "common/http/server.h"
#include "common/policy/policy.h"

namespace millrace::cli {
namespace {

// All but the gateway are for this machine's processes only.
constexpr char kLoopback[] = "127.0.0.1";

std::string Join(const LaunchContext& context, const char* role) {
  std::string list;
  const auto addresses = context.addresses.find(role);
  if (addresses == context.addresses.end()) return list;
  for (const std::string& address : addresses->second) list += (list.empty() ? "" : ",") + address;
  return list;
}

class ArgumentList {
 public:
  void Add(const std::string& flag, const std::string& value) {
    words_.push_back("--" + flag);
    words_.push_back(value);
  }
  void AddIfSet(const std::string& flag, const std::string& value) {
    if (!value.empty()) Add(flag, value);
  }
  void AddIfSet(const std::string& flag, uint32_t value) {
    if (value != 0) Add(flag, std::to_string(value));
  }
  void AddIfSet(const std::string& flag, const std::optional<config::Bytes>& value) {
    if (value) Add(flag, config::FormatBytes(value->value));
  }
  void AddSwitch(const std::string& flag, bool on) {
    if (on) words_.push_back("--" + flag);
  }
  std::vector<std::string> Take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

void AddGatewayArguments(ArgumentList& list, const UpConfig& config, const LaunchContext& context) {
  list.Add("port", std::to_string(context.ports.http));
  list.Add("grpc-port", std::to_string(context.ports.grpc));
  list.Add("prefill-balancers", Join(context, "prefill-balancer"));
  list.Add("decode-balancers", Join(context, "decode-balancer"));
  list.Add("model", config.model);
  list.AddIfSet("served-model-name", config.served_model_name);
  list.AddIfSet("api-key-file", config.api_key_file);
  list.AddSwitch("allow-anonymous", config.allow_anonymous);
}

void AddWorkerArguments(ArgumentList& list, const ProcessPlan& plan, const UpConfig& config,
                        const LaunchContext& context) {
  list.Add("balancers", Join(context, plan.role == "prefill" ? "prefill-balancer" : "decode-balancer"));
  if (plan.role == "prefill") list.Add("decode-balancers", Join(context, "decode-balancer"));
  list.AddIfSet("stores", Join(context, "store"));
  list.Add("model", config.model);
  list.AddIfSet("served-model-name", config.served_model_name);
  list.AddIfSet("threads", config.threads);
  list.AddIfSet("context", config.context);
  list.Add("isa", config.isa);
  list.AddIfSet("kv-memory", config.kv_memory);
}

std::string Below(const char* variable, const char* home_folder) {
  const char* base = std::getenv(variable);
  if (base != nullptr && *base != '\0') return base;
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string(home) + home_folder;
}

}  // namespace

void UpConfig::Describe(config::Schema& schema) {
  std::vector<std::string> policies;
  for (const policy::PolicyDescriptor* descriptor : policy::All()) policies.emplace_back(descriptor->name);
  schema.Add("name", &name, {.help = "name of this cluster on this machine"});
  schema.Add("model", &model, {.help = "GGUF file of the model", .required = true});
  schema.Add("served-model-name", &served_model_name, {.help = "what clients call the model; empty = the file's stem"});
  schema.Add("api-key-file", &api_key_file, {.help = "file of API keys, one a line; empty = no keys, loopback only"});
  schema.Add("allow-anonymous", &allow_anonymous, {.help = "serve without keys on addresses other than loopback"});
  schema.Add("host", &host, {.help = "address that the HTTP API listens on"});
  schema.Add("port", &port, {.help = "port of the HTTP API; 0 = any free one"});
  schema.Add("prefill", &prefill, {.help = "prefill workers", .min = 1, .max = 64});
  schema.Add("decode", &decode, {.help = "decode workers", .min = 1, .max = 64});
  schema.Add("store", &store, {.help = "kvcache stores; 0 = none", .min = 0, .max = 16});
  schema.Add("balancers", &balancers, {.help = "replicas of each balancer", .min = 1, .max = 16});
  schema.Add("threads", &threads, {.help = "compute threads of each worker; 0 = its default"});
  schema.Add("context", &context, {.help = "longest sequence in tokens; 0 = the model's"});
  schema.Add("isa", &isa,
             {.help = "instruction set of each worker; changes no result", .choices = engine::cpu::IsaNames()});
  schema.Add("kv-memory", &kv_memory,
             {.help = "KV memory of each worker, e.g. 512MiB; empty = its default", .min = 1 << 20});
  schema.Add("store-capacity", &store_capacity,
             {.help = "most bytes on disk of each store; empty = its default", .min = 1 << 20});
  schema.Add("store-min-free", &store_min_free, {.help = "bytes that each store leaves free on its disk"});
  schema.Add("store-guarantee-hours", &store_guarantee_hours,
             {.help = "a full store refuses new blocks rather than drop one that is younger; 0 = a plain cache"});
  schema.Add("policy", &policy, {.help = "how balancers pick an instance; empty = their default", .choices = policies});
  schema.Add("log-level", &log_level, {.help = "of every process", .choices = {"debug", "info", "warning", "error"}});
  schema.Add("drain-timeout-ms", &drain_timeout, {.help = "longest wait for answers under way at the end"});
  schema.Add("start-timeout-ms", &start_timeout, {.help = "longest wait until the cluster is ready", .min = 1000});
  schema.Add("detach", &detach, {.help = "return once the cluster is ready; `millrace down` stops it"});
}

Status UpConfig::Validate() const {
  if (host.empty()) return Status(Code::kInvalidArgument, Reason::kMissing, "--host is empty");
  if (api_key_file.empty() && !allow_anonymous && !http::IsLoopback(host)) {
    return Status(Code::kInvalidArgument, Reason::kMissing,
                  "--host " + host + " is open to others: give --api-key-file, or --allow-anonymous to serve anybody");
  }
  return OkStatus();
}

std::vector<ProcessPlan> PlanProcesses(const UpConfig& config) {
  std::vector<ProcessPlan> plans;
  const auto add = [&plans](const std::string& role, const std::string& program, uint32_t count, Stage stage) {
    for (uint32_t i = 0; i < count; ++i) plans.push_back({role + "-" + std::to_string(i), role, program, stage});
  };
  add("prefill-balancer", "millrace-prefill-balancer", config.balancers, Stage::kFirst);
  add("decode-balancer", "millrace-decode-balancer", config.balancers, Stage::kFirst);
  add("store", "millrace-kvcache-store", config.store, Stage::kFirst);
  add("prefill", "millrace-prefill-worker", config.prefill, Stage::kSecond);
  add("decode", "millrace-decode-worker", config.decode, Stage::kSecond);
  add("gateway", "millrace-gateway", 1, Stage::kSecond);
  return plans;
}

std::vector<std::string> Arguments(const ProcessPlan& plan, const UpConfig& config, const LaunchContext& context) {
  ArgumentList list;
  const bool gateway = plan.role == "gateway";
  list.Add("host", kLoopback);  // only the HTTP API is for others
  if (gateway) list.Add("api-host", config.host);
  list.Add("admin-port", std::to_string(context.ports.admin));
  list.Add("name", plan.name);
  list.Add("ready-file", context.ready_file);
  list.Add("log-level", config.log_level);
  list.Add("drain-timeout-ms", std::to_string(config.drain_timeout / Milliseconds(1)));
  if (gateway) {
    AddGatewayArguments(list, config, context);
    return list.Take();
  }
  list.Add("port", std::to_string(context.ports.grpc));
  if (plan.role == "store") {
    list.Add("path", context.store_path);
    list.AddIfSet("capacity", config.store_capacity);
    list.AddIfSet("min-free", config.store_min_free);
    list.Add("guarantee-hours", std::to_string(config.store_guarantee_hours));
  } else if (plan.role == "prefill" || plan.role == "decode") {
    AddWorkerArguments(list, plan, config, context);
  } else {
    list.AddIfSet("policy", config.policy);
  }
  return list.Take();
}

std::string ReachableHost(const std::string& host) {
  if (host == "0.0.0.0") return kLoopback;
  return host == "::" ? "::1" : host;
}

std::string DefaultModelPath() {
  const std::string cache = Below("XDG_CACHE_HOME", "/.cache");
  return cache.empty() ? "" : cache + "/millrace/models/smollm2-135m-instruct.gguf";
}

}  // namespace millrace::cli
