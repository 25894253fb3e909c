#include "services/kvcache_store/config.h"

#include "common/base/time.h"

namespace millrace::kvcache_store {

void Config::Describe(config::Schema& schema) {
  schema.Add("path", &path, {.help = "folder of the blocks, made when missing; one store each", .required = true});
  schema.Add("capacity", &capacity, {.help = "most bytes of blocks on disk", .min = 1 << 20});
  schema.Add("min-free", &min_free,
             {.help = "puts that would leave less free on the disk are refused; 16 MiB at least"});
  schema.Add("fsync", &fsync, {.help = "each put survives a power cut, not only the death of this process"});
  schema.Add("retention", &retention, {.help = "class of the blocks that are put", .choices = {"chat", "agent"}});
  schema.Add("chat-hours", &chat_hours, {.help = "how long blocks of class chat are kept", .min = 1});
  schema.Add("agent-hours", &agent_hours, {.help = "how long blocks of class agent are kept", .min = 1});
  schema.Add("guarantee-hours", &guarantee_hours,
             {.help = "no younger block gives way to another: a full store refuses puts instead; 0 = a plain cache"});
  schema.Add("read-memory", &read_memory, {.help = "buffers that workers read loaded blocks from"});
  schema.Add("staging-memory", &staging_memory, {.help = "buffers of blocks on their way to the disk"});
  schema.Add("max-load-blocks", &runtime.max_load_blocks, {.help = "most blocks in one load", .min = 1, .max = 1024});
  schema.Add("max-puts", &runtime.max_puts_in_flight,
             {.help = "most puts at once; more are refused as overloaded", .min = 1, .max = 65536});
  schema.Add("max-batch-puts", &runtime.max_batch_puts,
             {.help = "most blocks written to the disk at once", .min = 1, .max = 256});
  schema.Add("readers", &readers, {.help = "threads that read the disk", .min = 1, .max = 64});
  schema.Add("lease-ms", &runtime.lease_time, {.help = "how long a loaded block is kept for its worker", .min = 100});
  schema.Add("pull-deadline-ms", &runtime.pull_deadline,
             {.help = "a worker that does not give a block in this time is disconnected", .min = 10});
  transport.Describe(schema);
  schema.Add("heartbeat-ms", &runtime.liveness.heartbeat,
             {.help = "interval of heartbeats on every stream", .min = 10, .max = 60000});
  schema.Add("silence-ms", &runtime.liveness.silence,
             {.help = "a worker silent for so long is dead", .min = 50, .max = 600000});
  schema.Add("progress-ms", &runtime.liveness.progress,
             {.help = "a worker with work and no progress for so long is dead", .min = 50, .max = 600000});
}

Status Config::Validate() const {
  if (runtime.liveness.silence < 2 * runtime.liveness.heartbeat) {
    return Status(Code::kInvalidArgument, Reason::kBadValue, "--silence-ms must be at least twice --heartbeat-ms");
  }
  if (guarantee_hours > chat_hours || guarantee_hours > agent_hours) {
    return Status(Code::kInvalidArgument, Reason::kBadValue,
                  "--guarantee-hours must not exceed --chat-hours and --agent-hours");
  }
  return OkStatus();
}

store::TierOptions Config::Tier() const {
  constexpr int64_t kHour = 3600;
  return {.path = path,
          .capacity_bytes = capacity.value,
          .min_free_bytes = min_free.value,
          .fsync = fsync,
          .retention = {.chat_seconds = chat_hours * kHour,
                        .agent_seconds = agent_hours * kHour,
                        .guaranteed_seconds = guarantee_hours * kHour},
          .unix_seconds = [] { return WallClockMs() / 1000; }};
}

runtime::StoreRuntimeOptions Config::Runtime() const {
  runtime::StoreRuntimeOptions options = runtime;
  options.read_bytes = read_memory.value;
  options.staging_bytes = staging_memory.value;
  options.retention = retention == "agent" ? store::RetentionClass::kAgent : store::RetentionClass::kChat;
  return options;
}

}  // namespace millrace::kvcache_store
