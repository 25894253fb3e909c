// Instances with room in turn, by instance id.

#include <string>

#include "common/policy/policy.h"

namespace millrace::policy::round_robin {
namespace {

class RoundRobin final : public Policy {
 public:
  explicit RoundRobin(const PolicyOptions& options) : options_(options) {}

  Decision Pick(const cluster::ClusterView& view, const RequestFeatures& request, TimePoint, Rng&) override {
    const Eligible eligible = FindEligible(view, request, options_);
    if (eligible.instances.empty()) return eligible.otherwise;
    const cluster::Instance* next = eligible.instances.front();
    for (const cluster::Instance* instance : eligible.instances) {
      if (instance->info.instance_id > last_id_) {
        next = instance;
        break;
      }
    }
    last_id_ = next->info.instance_id;
    return Route{next->info.incarnation};
  }

 private:
  const PolicyOptions options_;
  std::string last_id_;  // the turn goes to the first id after it
};

}  // namespace

const PolicyDescriptor kDescriptor = {
    "round_robin", "instances with room in turn",
    [](const PolicyOptions& options) -> std::unique_ptr<Policy> { return std::make_unique<RoundRobin>(options); }};

}  // namespace millrace::policy::round_robin
