#pragma once
// Balancing policies: given the instances that can serve a request, which one does. A policy is one .cc of this folder
// that defines `millrace::policy::<file>::kDescriptor`; the list in CMakeLists.txt registers it.
//
// Picks are deterministic: the same construction and the same sequence of arguments give the same decisions. A policy
// reads no clock, logs nothing and never blocks. One object serves one pool on one thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/random.h"
#include "common/base/status.h"
#include "common/base/time.h"
#include "common/cluster/instance.h"

namespace millrace::policy {

struct RequestFeatures {
  uint32_t prompt_tokens = 0;   // prefill: to compute; decode: to hold
  uint32_t max_new_tokens = 0;  // 0 = not said
};

struct Route {
  cluster::Incarnation target = 0;  // one of the view's
};
// Ask again when the view changes, or at `until` at the latest.
struct Wait {
  TimePoint until = kNever;
};
// Never an OK status.
struct Shed {
  Status status;
};
using Decision = std::variant<Route, Wait, Shed>;

class Policy {
 public:
  virtual ~Policy() = default;
  // `view` holds only instances that are ready and serve the request's model; pending_* are already in it.
  // O(instances). An empty view gives Wait. Equal choices are told apart by `rng`.
  virtual Decision Pick(const cluster::ClusterView& view, const RequestFeatures& request, TimePoint now, Rng& rng) = 0;
};

struct PolicyOptions {
  uint32_t prefill_queue_limit = 64;           // requests at one prefill instance before picks wait at the balancer
  double decode_tokens_per_sequence = 2048.0;  // tokens of KV that slow a decode step as much as one more sequence
};

struct PolicyDescriptor {
  std::string_view name;  // the file's
  std::string_view help;  // one line
  std::unique_ptr<Policy> (*create)(const PolicyOptions& options);
};

// Every policy, in list order.
std::span<const PolicyDescriptor* const> All();

// kInvalidArgument lists the names there are.
StatusOr<std::unique_ptr<Policy>> MakePolicy(std::string_view name, const PolicyOptions& options);

// ---- shared by policies --------------------------------------------------------------------------------------------

enum class Room : uint8_t { kNow, kLater, kNever };
// Whether `instance` can take the request: a prefill instance by its queue, a decode instance by sequences and blocks,
// its pending picks included. kNever: not even when it is empty.
Room RoomFor(const cluster::Instance& instance, const RequestFeatures& request, const PolicyOptions& options);

// The instances with room now, in view order; or, when there is none, what to say instead.
struct Eligible {
  std::vector<const cluster::Instance*> instances;
  Decision otherwise;
};
Eligible FindEligible(const cluster::ClusterView& view, const RequestFeatures& request, const PolicyOptions& options);

}  // namespace millrace::policy
