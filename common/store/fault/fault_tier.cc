#include "common/store/fault/fault_tier.h"

#include <utility>

namespace millrace::store {

std::vector<Status> FaultTier::Put(std::span<const TierPut> batch) {
  std::vector<Status> statuses;
  for (const auto& item : batch) {
    const auto bytes = static_cast<int64_t>(item.bytes.size());
    const int64_t left = faults_.writable_bytes;
    const bool there = tier_.ContainsPrefix({&item.key, 1}) == 1;
    if (left >= 0 && left < bytes && !there) {
      statuses.push_back(Status(Code::kResourceExhausted, Reason::kNoSpace, "injected: no space left on device"));
      continue;
    }
    if (left >= 0 && !there) faults_.writable_bytes -= bytes;
    statuses.push_back(std::move(tier_.Put({&item, 1}).front()));
  }
  return statuses;
}

StatusOr<uint32_t> FaultTier::Get(const kv::BlockKey& key, std::span<std::byte> into) {
  if (faults_.read_fails) return Status(Code::kDataLoss, Reason::kKvCorrupt, "injected: input/output error");
  MR_ASSIGN_OR_RETURN(const uint32_t crc32c, tier_.Get(key, into));
  if (faults_.read_corrupts && !into.empty()) into[into.size() / 2] ^= std::byte{1};
  return crc32c;
}

}  // namespace millrace::store
