#pragma once
// A decorator that makes any transport fail as told, for tests. Memory, regions and the address are the inner one's.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/time.h"
#include "common/transfer/transport.h"

namespace millrace::transfer::fault {

enum class FaultKind : uint8_t {
  kDelay,     // the bytes arrive; the completion comes `delay` later
  kFail,      // the first `bytes` bytes arrive, then kUnavailable
  kCorrupt,   // completes with OK, and the byte at `bytes` (modulo the length) is wrong
  kStall,     // never completes until its link is destroyed; no byte arrives
  kDropLink,  // this get and all later ones of its link fail with kPeerLost
};

struct FaultRule {
  FaultKind kind = FaultKind::kFail;
  double probability = 1;  // of each get that the rule covers
  uint64_t first_get = 0;  // gets are counted from 0 over all links since SetPlan
  uint64_t gets = ~uint64_t{0};
  uint64_t bytes = 0;
  Duration delay{};
};

// For each get the first rule that covers it and wins its draw applies. Which gets are hit depends on the seed and the
// order of gets alone.
struct FaultPlan {
  uint64_t seed = 0;
  std::vector<FaultRule> rules;
};

class FaultyTransport : public Transport {
 public:
  virtual void SetPlan(FaultPlan plan) = 0;  // thread-safe; for gets from now on
  virtual uint64_t faults() const = 0;       // rules applied so far
};

std::unique_ptr<FaultyTransport> MakeFaultyTransport(std::unique_ptr<Transport> inner, FaultPlan plan);

}  // namespace millrace::transfer::fault
