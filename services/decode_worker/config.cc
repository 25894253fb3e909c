#include "services/decode_worker/config.h"

namespace millrace::decode_worker {

void Config::Describe(config::Schema& schema) {
  worker.Describe(schema);
  schema.Add("max-sequences", &runtime.limits.most_sequences,
             {.help = "sequences reserved and running together", .min = 1});
  schema.Add("expected-growth", &runtime.limits.expected_growth,
             {.help = "tokens that a request is expected to generate, before any was measured", .min = 1});
  schema.Add("max-pulls", &runtime.pulls_per_link, {.help = "reads of one prefill worker's KV at once", .min = 1});
  schema.Add("attach-timeout-ms", &runtime.attach_timeout,
             {.help = "longest that a session waits for its gateway", .min = 100});
  schema.Add("handoff-timeout-ms", &runtime.handoff_timeout,
             {.help = "longest that a hand-over may take without progress", .min = 100});
}

}  // namespace millrace::decode_worker
