#pragma once
// A tier that fails on purpose, around one that does not.

#include <atomic>
#include <cstdint>

#include "common/store/tier.h"

namespace millrace::store {

// Switches may be turned at any time, from any thread.
struct TierFaults {
  // Put: what is left of the medium; an item that needs more fails with kNoSpace. Negative: no limit.
  std::atomic<int64_t> writable_bytes{-1};
  std::atomic<bool> read_fails{false};     // Get: kDataLoss
  std::atomic<bool> read_corrupts{false};  // Get: one bit flipped, and the tier does not notice
};

class FaultTier final : public Tier {
 public:
  // Both outlive it.
  FaultTier(Tier& tier, TierFaults& faults) : tier_(tier), faults_(faults) {}

  std::vector<Status> Put(std::span<const TierPut> batch) override;
  StatusOr<uint32_t> Get(const kv::BlockKey& key, std::span<std::byte> into) override;
  uint32_t ContainsPrefix(std::span<const kv::BlockKey> keys) const override { return tier_.ContainsPrefix(keys); }
  TierStats Stats() const override { return tier_.Stats(); }
  Status Close() override { return tier_.Close(); }

 private:
  Tier& tier_;
  TierFaults& faults_;
};

}  // namespace millrace::store
