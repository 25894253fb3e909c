#include "services/worker/config.h"

#include <filesystem>

#include "common/engine/cpu/isa.h"

namespace millrace::worker {

void WorkerConfig::Describe(config::Schema& schema) {
  schema.Add("model", &model, {.help = "GGUF file of the model", .required = true});
  schema.Add("served-model-name", &served_model_name, {.help = "what clients call the model; empty = the file's stem"});
  schema.Add("cache-dir", &cache_dir, {.help = "folder of packed weights; empty = the user's cache folder"});
  schema.Add("threads", &threads, {.help = "threads of the engine; 0 = one a processor", .max = 512});
  schema.Add("context", &context, {.help = "longest sequence in tokens; 0 = the model's"});
  schema.Add("isa", &isa, {.help = "instruction set; changes no result", .choices = engine::cpu::IsaNames()});
  schema.Add("kv-memory", &kv_memory, {.help = "memory for KV", .min = 1 << 20});
  schema.Add("balancers", &balancers,
             {.help = "host:port of each replica of this worker's balancer; a name may have many addresses",
              .required = true});
  schema.Add("stores", &stores, {.help = "host:port of each kvcache store; empty = none"});
  transport.Describe(schema);
  schema.Add("heartbeat-ms", &liveness.heartbeat,
             {.help = "interval of heartbeats on every stream", .min = 10, .max = 60000});
  schema.Add("silence-ms", &liveness.silence, {.help = "a peer silent for so long is dead", .min = 50, .max = 600000});
  schema.Add("progress-ms", &liveness.progress,
             {.help = "a peer with work and no progress for so long is dead", .min = 50, .max = 600000});
}

Status WorkerConfig::Validate() const {
  if (liveness.silence >= 2 * liveness.heartbeat) return OkStatus();
  return Status(Code::kInvalidArgument, Reason::kBadValue, "--silence-ms must be at least twice --heartbeat-ms");
}

std::string WorkerConfig::ModelName() const {
  return served_model_name.empty() ? std::filesystem::path(model).stem().string() : served_model_name;
}

}  // namespace millrace::worker
