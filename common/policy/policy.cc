#include "common/policy/policy.h"

#include <algorithm>

#include "common/kv/layout.h"

namespace millrace::policy {
namespace {

Room DecodeRoom(const cluster::Instance& instance, const RequestFeatures& request) {
  const cluster::InstanceInfo& info = instance.info;
  const cluster::Load& load = instance.load;
  const uint32_t needed = kv::BlocksFor(uint64_t{request.prompt_tokens} + 1);
  if (info.total_blocks != 0 && needed > info.total_blocks) return Room::kNever;
  if (info.max_sequences != 0 && load.running + instance.pending_requests >= info.max_sequences) return Room::kLater;
  // Each pending pick rounds up to whole blocks by itself.
  const uint64_t promised = uint64_t{kv::BlocksFor(instance.pending_tokens)} + instance.pending_requests;
  return load.free_blocks >= promised + needed ? Room::kNow : Room::kLater;
}

Room PrefillRoom(const cluster::Instance& instance, const RequestFeatures& request, const PolicyOptions& options) {
  const uint32_t needed = kv::BlocksFor(request.prompt_tokens);
  if (instance.info.total_blocks != 0 && needed > instance.info.total_blocks) return Room::kNever;
  const uint64_t waiting = uint64_t{instance.load.queued_requests} + instance.pending_requests;
  return waiting < options.prefill_queue_limit ? Room::kNow : Room::kLater;
}

Decision NothingFits(const cluster::ClusterView& view, const RequestFeatures& request) {
  uint32_t largest = 0;
  for (const cluster::Instance& instance : view.instances) largest = std::max(largest, instance.info.total_blocks);
  return Shed{Status(Code::kResourceExhausted, Reason::kOverloaded,
                     "a sequence of " + std::to_string(request.prompt_tokens) + " tokens needs " +
                         std::to_string(kv::BlocksFor(uint64_t{request.prompt_tokens} + 1)) +
                         " KV blocks and the largest instance has " + std::to_string(largest) +
                         "; give the workers a larger --kv-memory")};
}

}  // namespace

Room RoomFor(const cluster::Instance& instance, const RequestFeatures& request, const PolicyOptions& options) {
  return instance.info.role == cluster::Role::kDecode ? DecodeRoom(instance, request)
                                                      : PrefillRoom(instance, request, options);
}

Eligible FindEligible(const cluster::ClusterView& view, const RequestFeatures& request, const PolicyOptions& options) {
  Eligible eligible{{}, Wait{}};
  bool later = view.instances.empty();
  for (const cluster::Instance& instance : view.instances) {
    const Room room = RoomFor(instance, request, options);
    if (room == Room::kNow) eligible.instances.push_back(&instance);
    later = later || room == Room::kLater;
  }
  if (eligible.instances.empty() && !later) eligible.otherwise = NothingFits(view, request);
  return eligible;
}

StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name, const PolicyOptions& options) {
  std::string known;
  for (const PolicyDescriptor* descriptor : All()) {
    if (descriptor->name == name) return descriptor->create(options);
    known += (known.empty() ? "" : ", ") + std::string(descriptor->name);
  }
  return InvalidArgument("unknown policy '" + std::string(name) + "'; there are: " + known);
}

}  // namespace millrace::policy
