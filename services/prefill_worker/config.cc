#include "services/prefill_worker/config.h"

namespace millrace::prefill_worker {

void Config::Describe(config::Schema& schema) {
  worker.Describe(schema);
  schema.Add("decode-balancers", &decode_balancers,
             {.help = "host:port of each replica of the decode balancer", .required = true});
  schema.Add("step-ms", &runtime.limits.step_time,
             {.help = "most a step of the engine should take; decides the size of chunks", .min = 10, .max = 2000});
  schema.Add("max-step-tokens", &runtime.limits.most_tokens, {.help = "most tokens of one step", .min = 16});
  schema.Add("max-queued-requests", &runtime.queue.most_requests,
             {.help = "requests not computed yet; more are refused as overloaded", .min = 1});
  schema.Add("max-queued-tokens", &runtime.queue.most_tokens,
             {.help = "their tokens; more are refused as overloaded", .min = 1});
  schema.Add("max-sequences", &runtime.most_sequences, {.help = "sequences that hold KV at once", .min = 1});
  schema.Add("lookup-timeout-ms", &runtime.lookup_timeout,
             {.help = "longest wait for the store to say what it has", .min = 1});
  schema.Add("load-timeout-ms", &runtime.load_timeout, {.help = "longest wait for blocks of the store", .min = 1});
  schema.Add("reserve-timeout-ms", &runtime.reserve_timeout,
             {.help = "longest wait for a slot at one decode worker", .min = 100});
  schema.Add("lease-ms", &runtime.lease,
             {.help = "longest that KV waits for the decode worker to have read it", .min = 100});
}

}  // namespace millrace::prefill_worker
