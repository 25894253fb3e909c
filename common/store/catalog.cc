#include "common/store/catalog.h"

#include <algorithm>
#include <tuple>

#include "common/base/check.h"

namespace millrace::store {
namespace {

// A record written this much ahead of the clock was written by a wrong clock and has no guarantee.
constexpr int64_t kClockToleranceSeconds = 3600;

bool Expired(const IndexRow& row, int64_t now_s) { return row.header.expires_s <= now_s; }

}  // namespace

// How bad it would be to give a segment up; the smallest goes first.
struct Catalog::Candidate {
  bool evicts = false;          // a segment that loses nothing goes before one that does
  uint64_t mean_last_used = 0;  // of what it would evict
  uint64_t move_bytes = 0;
  uint64_t segment = 0;
  auto Order() const { return std::tie(evicts, mean_last_used, move_bytes, segment); }
};

Catalog::Catalog(CatalogOptions options) : options_(options) {}

const IndexRow* Catalog::Find(const kv::BlockKey& key, int64_t now_s) const {
  const auto slot = rows_.find(key);
  return slot == rows_.end() || Expired(slot->second.row, now_s) ? nullptr : &slot->second.row;
}

uint32_t Catalog::ContainsPrefix(std::span<const kv::BlockKey> keys, int64_t now_s) const {
  uint32_t present = 0;
  for (const auto& key : keys) {
    if (Find(key, now_s) == nullptr) break;
    ++present;
  }
  return present;
}

std::vector<IndexRow> Catalog::Rows() const {
  std::vector<IndexRow> rows;
  rows.reserve(rows_.size());
  for (const auto& [key, slot] : rows_) rows.push_back(slot.row);
  return rows;
}

void Catalog::Insert(const IndexRow& row) {
  const auto segment = segments_.find(row.segment);
  MR_CHECK(segment != segments_.end());
  Erase(row.header.key);
  if (const auto squatter = segment->second.rows.find(row.offset); squatter != segment->second.rows.end()) {
    const kv::BlockKey key = squatter->second;
    Erase(key);
  }
  segment->second.rows.emplace(row.offset, row.header.key);
  rows_.emplace(row.header.key, Slot{.row = row, .last_used = ++uses_});
  live_bytes_ += RecordBytes(row.header.length);
}

void Catalog::Erase(const kv::BlockKey& key) {
  const auto slot = rows_.find(key);
  if (slot == rows_.end()) return;
  segments_.at(slot->second.row.segment).rows.erase(slot->second.row.offset);
  live_bytes_ -= RecordBytes(slot->second.row.header.length);
  rows_.erase(slot);
}

void Catalog::Touch(const kv::BlockKey& key) {
  const auto slot = rows_.find(key);
  if (slot == rows_.end()) return;
  slot->second.last_used = ++uses_;
  slot->second.hit = true;
}

RecordHeader Catalog::Describe(const kv::BlockKey& key, RetentionClass retention, int64_t now_s) const {
  return {.key = key,
          .retention = retention,
          .written_s = now_s,
          .expires_s = now_s + options_.retention.Seconds(retention)};
}

void Catalog::AddSegment(uint64_t id, uint64_t bytes) {
  MR_CHECK(segments_.emplace(id, Segment{.bytes = bytes}).second);
  file_bytes_ += bytes;
}

void Catalog::Activate(uint64_t id) {
  MR_CHECK(segments_.contains(id));
  active_ = id;
}

void Catalog::SetSegmentBytes(uint64_t id, uint64_t bytes) {
  Segment& segment = segments_.at(id);
  file_bytes_ += bytes - segment.bytes;
  segment.bytes = bytes;
}

void Catalog::RemoveSegment(uint64_t id) {
  const auto segment = segments_.find(id);
  if (segment == segments_.end()) return;
  const auto rows = segment->second.rows;
  for (const auto& [offset, key] : rows) Erase(key);
  file_bytes_ -= segment->second.bytes;
  segments_.erase(segment);
  if (active_ == id) active_.reset();
}

uint64_t Catalog::segment_bytes(uint64_t id) const { return segments_.at(id).bytes; }

bool Catalog::FitsActive(uint64_t record_bytes) const {
  if (!active_.has_value()) return false;
  const uint64_t bytes = segments_.at(*active_).bytes;
  return bytes == 0 || bytes + record_bytes <= options_.segment_bytes;
}

bool Catalog::HasRoom(uint64_t bytes) const {
  return file_bytes_ + bytes + options_.segment_bytes / 2 <= options_.capacity_bytes;
}

bool Catalog::Guaranteed(const IndexRow& row, int64_t now_s) const {
  const int64_t age = now_s - row.header.written_s;
  return age >= -kClockToleranceSeconds && age < options_.retention.guaranteed_seconds;
}

std::optional<Catalog::Candidate> Catalog::Judge(uint64_t id, const Segment& segment, int64_t now_s) const {
  Candidate candidate{.segment = id};
  uint64_t evicted = 0, used_sum = 0;
  for (const auto& [offset, key] : segment.rows) {
    const Slot& slot = rows_.at(key);
    if (Expired(slot.row, now_s)) continue;
    if (Guaranteed(slot.row, now_s)) {
      candidate.move_bytes += RecordBytes(slot.row.header.length);
    } else {
      ++evicted;
      used_sum += slot.last_used;
    }
  }
  if (candidate.move_bytes > std::min(segment.bytes, options_.segment_bytes) / 2) return std::nullopt;
  candidate.evicts = evicted > 0;
  if (evicted > 0) candidate.mean_last_used = used_sum / evicted;
  return candidate;
}

ReclaimPlan Catalog::Plan(uint64_t id, const Segment& segment, int64_t now_s) const {
  ReclaimPlan plan{.segment = id};
  uint64_t room = std::min(segment.bytes, options_.segment_bytes) / 2;
  std::map<uint64_t, kv::BlockKey> move;  // by offset
  std::vector<const Slot*> evictable;
  for (const auto& [offset, key] : segment.rows) {
    const Slot& slot = rows_.at(key);
    if (Expired(slot.row, now_s)) {
      plan.expire.push_back(key);
    } else if (Guaranteed(slot.row, now_s)) {
      move.emplace(offset, key);
      room -= std::min(room, RecordBytes(slot.row.header.length));
    } else {
      evictable.push_back(&slot);
    }
  }
  std::sort(evictable.begin(), evictable.end(),
            [](const Slot* a, const Slot* b) { return a->last_used > b->last_used; });
  for (const Slot* slot : evictable) {
    const uint64_t bytes = RecordBytes(slot->row.header.length);
    if (slot->hit && bytes <= room) {
      room -= bytes;
      move.emplace(slot->row.offset, slot->row.header.key);
    } else {
      plan.evict.push_back(slot->row.header.key);
    }
  }
  for (const auto& [offset, key] : move) plan.move.push_back(key);
  return plan;
}

std::optional<ReclaimPlan> Catalog::PlanReclaim(int64_t now_s) const {
  std::optional<Candidate> best;
  for (const auto& [id, segment] : segments_) {
    if (active_ == id) continue;
    const auto candidate = Judge(id, segment, now_s);
    if (candidate.has_value() && (!best.has_value() || candidate->Order() < best->Order())) best = candidate;
  }
  if (!best.has_value()) return std::nullopt;
  return Plan(best->segment, segments_.at(best->segment), now_s);
}

std::vector<ReclaimPlan> Catalog::PlanExpiry(int64_t now_s) const {
  std::vector<ReclaimPlan> plans;
  for (const auto& [id, segment] : segments_) {
    if (active_ == id) continue;
    const bool dead = std::all_of(segment.rows.begin(), segment.rows.end(),
                                  [&](const auto& entry) { return Expired(rows_.at(entry.second).row, now_s); });
    if (dead) plans.push_back(Plan(id, segment, now_s));
  }
  return plans;
}

}  // namespace millrace::store
