#include "common/store/memory/memory_tier.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "common/base/crc32c.h"
#include "common/store/catalog.h"
#include "common/store/record.h"

namespace millrace::store {
namespace {

class MemoryTier final : public Tier {
 public:
  explicit MemoryTier(TierOptions options)
      : options_(std::move(options)),
        catalog_({.capacity_bytes = options_.capacity_bytes,
                  .segment_bytes = options_.capacity_bytes / kSegments,
                  .retention = options_.retention}) {}

  std::vector<Status> Put(std::span<const TierPut> batch) override {
    std::lock_guard lock(mutex_);
    std::vector<Status> statuses;
    for (const auto& item : batch) statuses.push_back(PutOne(item));
    return statuses;
  }

  StatusOr<uint32_t> Get(const kv::BlockKey& key, std::span<std::byte> into) override {
    std::lock_guard lock(mutex_);
    const IndexRow* row = closed_ ? nullptr : catalog_.Find(key, options_.unix_seconds());
    if (row == nullptr) return NotFound("no block " + key.ToHex());
    if (row->header.length != into.size()) {
      return InvalidArgument("block " + key.ToHex() + " has " + std::to_string(row->header.length) + " bytes, not " +
                             std::to_string(into.size()));
    }
    const auto& bytes = bytes_.at(key);
    std::memcpy(into.data(), bytes.data(), into.size());
    const uint32_t crc32c = row->header.crc32c;
    if (Crc32c(into.data(), into.size()) != crc32c) {
      catalog_.Erase(key);
      bytes_.erase(key);
      ++stats_.corrupt;
      return Status(Code::kDataLoss, Reason::kKvCorrupt, "block " + key.ToHex() + " failed its checksum");
    }
    catalog_.Touch(key);
    return crc32c;
  }

  uint32_t ContainsPrefix(std::span<const kv::BlockKey> keys) const override {
    std::lock_guard lock(mutex_);
    return closed_ ? 0 : catalog_.ContainsPrefix(keys, options_.unix_seconds());
  }

  TierStats Stats() const override {
    std::lock_guard lock(mutex_);
    TierStats stats = stats_;
    stats.blocks = catalog_.blocks();
    stats.live_bytes = catalog_.live_bytes();
    stats.used_bytes = catalog_.file_bytes();
    stats.capacity_bytes = options_.capacity_bytes;
    stats.free_bytes = options_.capacity_bytes - catalog_.file_bytes();
    return stats;
  }

  Status Close() override {
    std::lock_guard lock(mutex_);
    closed_ = true;
    bytes_.clear();
    return OkStatus();
  }

 private:
  static constexpr uint64_t kSegments = 16;

  Status PutOne(const TierPut& item) {  // lock held
    if (closed_) return FailedPrecondition("the store is closed");
    const int64_t now = options_.unix_seconds();
    if (catalog_.Find(item.key, now) != nullptr) return OkStatus();
    if (item.bytes.empty() || item.bytes.size() > kMaxPayloadBytes ||
        RecordBytes(static_cast<uint32_t>(item.bytes.size())) > options_.capacity_bytes / 4) {
      return InvalidArgument("a block of " + std::to_string(item.bytes.size()) + " bytes does not fit the store");
    }
    RecordHeader header = catalog_.Describe(item.key, item.retention, now);
    header.length = static_cast<uint32_t>(item.bytes.size());
    header.crc32c = item.crc32c;
    MR_RETURN_IF_ERROR(MakeRoom(RecordBytes(header.length), now));
    Append(header);
    bytes_[item.key].assign(item.bytes.begin(), item.bytes.end());
    return OkStatus();
  }

  Status MakeRoom(uint64_t record_bytes, int64_t now) {
    while (!catalog_.HasRoom(record_bytes)) {
      const auto plan = catalog_.PlanReclaim(now);
      stats_.guarantee_full = !plan.has_value();
      if (!plan.has_value()) {
        return {Code::kResourceExhausted, Reason::kNoSpace, "the store is full of blocks within their guarantee"};
      }
      for (const auto& key : plan->move) Append(catalog_.Find(key, now)->header);
      for (const auto& key : plan->evict) bytes_.erase(key);
      for (const auto& key : plan->expire) bytes_.erase(key);
      stats_.evicted += plan->evict.size();
      stats_.expired += plan->expire.size();
      catalog_.RemoveSegment(plan->segment);
    }
    if (options_.capacity_bytes - catalog_.file_bytes() < options_.min_free_bytes + record_bytes) {
      return {Code::kResourceExhausted, Reason::kNoSpace, "less than the floor would be left free"};
    }
    stats_.guarantee_full = false;
    return OkStatus();
  }

  void Append(const RecordHeader& header) {
    const uint64_t bytes = RecordBytes(header.length);
    if (!catalog_.FitsActive(bytes)) {
      catalog_.AddSegment(next_segment_, 0);
      catalog_.Activate(next_segment_++);
    }
    const uint64_t segment = *catalog_.active();
    const uint64_t offset = catalog_.segment_bytes(segment);
    catalog_.SetSegmentBytes(segment, offset + bytes);
    catalog_.Insert({.segment = segment, .offset = offset, .header = header});
  }

  const TierOptions options_;
  mutable std::mutex mutex_;
  Catalog catalog_;                                       // guarded by mutex_
  std::map<kv::BlockKey, std::vector<std::byte>> bytes_;  // guarded by mutex_
  TierStats stats_;                                       // guarded by mutex_
  uint64_t next_segment_ = 1;                             // guarded by mutex_
  bool closed_ = false;                                   // guarded by mutex_
};

}  // namespace

StatusOr<std::unique_ptr<Tier>> OpenMemoryTier(TierOptions options) {
  if (options.capacity_bytes == 0) return InvalidArgument("the capacity of a store in memory must be given");
  if (!options.unix_seconds) return InvalidArgument("a tier needs a clock");
  return std::unique_ptr<Tier>(std::make_unique<MemoryTier>(std::move(options)));
}

}  // namespace millrace::store
