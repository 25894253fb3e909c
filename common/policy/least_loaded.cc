// The instance with the least predicted cost: a prefill instance by seconds of unfinished work, a decode instance by
// the step its sequences and their KV make.

#include <vector>

#include "common/policy/cost.h"
#include "common/policy/policy.h"

namespace millrace::policy::least_loaded {
namespace {

class LeastLoaded final : public Policy {
 public:
  explicit LeastLoaded(const PolicyOptions& options) : options_(options) {}

  Decision Pick(const cluster::ClusterView& view, const RequestFeatures& request, TimePoint, Rng& rng) override {
    const Eligible eligible = FindEligible(view, request, options_);
    if (eligible.instances.empty()) return eligible.otherwise;
    const double reference_rate = ReferenceRate(view);
    std::vector<cluster::Incarnation> best;
    double best_cost = 0;
    for (const cluster::Instance* instance : eligible.instances) {
      const double cost = Cost(*instance, request, reference_rate);
      if (best.empty() || cost < best_cost) {
        best.clear();
        best_cost = cost;
      }
      if (cost == best_cost) best.push_back(instance->info.incarnation);
    }
    return Route{best.size() == 1 ? best[0] : best[rng.Below(best.size())]};
  }

 private:
  double Cost(const cluster::Instance& instance, const RequestFeatures& request, double reference_rate) const {
    return instance.info.role == cluster::Role::kDecode
               ? DecodeStepCost(instance, request, options_.decode_tokens_per_sequence)
               : PrefillSeconds(instance, request, reference_rate);
  }

  const PolicyOptions options_;
};

}  // namespace

const PolicyDescriptor kDescriptor = {
    "least_loaded", "least predicted seconds of prefill work, or least predicted decode step",
    [](const PolicyOptions& options) -> std::unique_ptr<Policy> { return std::make_unique<LeastLoaded>(options); }};

}  // namespace millrace::policy::least_loaded
