#pragma once
// What the control plane knows of one process ("instance"): identity, capabilities, load. Pure values.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/time.h"

namespace millrace::cluster {

enum class Role : uint8_t { kGateway, kPrefill, kDecode, kStore, kPrefillBalancer, kDecodeBalancer };
std::string_view RoleName(Role role);  // "prefill"

// Drawn once when a process starts, never 0. A restarted process is a new peer.
using Incarnation = uint64_t;

struct ModelIdentity {
  std::string name;           // what clients call it
  std::string layout_digest;  // kv::Layout::Digest(): model, layout and numerics class; pairs only with its equal
  uint32_t context_tokens = 0;
  std::string model_digest;  // SHA-256 of the model file, hex: a gateway uses workers of exactly its own file
  friend bool operator==(const ModelIdentity&, const ModelIdentity&) = default;
};

struct InstanceInfo {
  std::string instance_id;  // stable name, e.g. "prefill-0"; unique in its pool
  Incarnation incarnation = 0;
  Role role = Role::kPrefill;
  std::string address;  // gRPC host:port
  ModelIdentity model;
  uint32_t max_sequences = 0;  // decode: most running at once
  uint32_t total_blocks = 0;
  friend bool operator==(const InstanceInfo&, const InstanceInfo&) = default;
};

struct Load {
  uint64_t sequence = 0;  // grows with every report of one incarnation
  bool ready = false;     // can do its job now
  bool draining = false;
  bool busy = false;      // has work; then progress must grow
  uint64_t progress = 0;  // engine progress counter
  uint32_t queued_requests = 0;
  uint64_t queued_tokens = 0;  // prefill: prompt tokens not computed yet
  uint32_t running = 0;        // sequences holding blocks
  uint64_t kv_tokens = 0;      // decode: tokens of KV of running sequences
  uint32_t free_blocks = 0;
  double tokens_per_second = 0;  // measured rate of the stage; 0 = not measured yet
  friend bool operator==(const Load&, const Load&) = default;
};

// One instance as a policy sees it. `pending_*` are the balancer's own picks that no report has shown yet.
struct Instance {
  InstanceInfo info;
  Load load;
  uint32_t pending_requests = 0;
  uint64_t pending_tokens = 0;
};

// Immutable once published; sorted by instance_id.
struct ClusterView {
  uint64_t version = 0;
  std::vector<Instance> instances;
};

}  // namespace millrace::cluster
