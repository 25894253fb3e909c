#include "common/policy/cost.h"

namespace millrace::policy {

double ReferenceRate(const cluster::ClusterView& view) {
  double sum = 0;
  uint32_t measured = 0;
  for (const cluster::Instance& instance : view.instances) {
    if (!(instance.load.tokens_per_second > 0)) continue;
    sum += instance.load.tokens_per_second;
    ++measured;
  }
  return measured == 0 ? 1.0 : sum / measured;
}

double PrefillSeconds(const cluster::Instance& instance, const RequestFeatures& request, double reference_rate) {
  const double tokens = static_cast<double>(instance.load.queued_tokens) +
                        static_cast<double>(instance.pending_tokens) + request.prompt_tokens;
  const double rate = instance.load.tokens_per_second > 0 ? instance.load.tokens_per_second : reference_rate;
  return tokens / rate;
}

double DecodeStepCost(const cluster::Instance& instance, const RequestFeatures& request, double tokens_per_sequence) {
  const double sequences = 1.0 + instance.load.running + instance.pending_requests;
  const double tokens = static_cast<double>(instance.load.kv_tokens) + static_cast<double>(instance.pending_tokens) +
                        request.prompt_tokens;
  return sequences + tokens / tokens_per_sequence;
}

}  // namespace millrace::policy
