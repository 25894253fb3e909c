#pragma once
// What a store on segment files has and what to give up: the index in memory, the accounting of segments, and the
// choice of what to reclaim. Pure: told the time and what happened to files, it says what to do.
//
// Room: files never hold more than `capacity_bytes`. Records are appended to one active segment; all others are sealed.
// Bytes come back only by deleting a sealed segment. Half a segment is kept in reserve for records that move out of a
// victim before it is deleted, so moving never breaks the cap.
//
// Worth, least first: expired; not used for the longest time; everything within the retention guarantee is not for
// sale. A segment is given up as a whole: guaranteed records, and those that were hit since they were written, move to
// the active segment (at most half a segment, so each reclaim gains at least the other half); the rest is evicted.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/kv/block_key.h"
#include "common/store/record.h"
#include "common/store/retention.h"

namespace millrace::store {

struct CatalogOptions {
  uint64_t capacity_bytes = 0;
  uint64_t segment_bytes = 0;  // a segment is sealed when the next record would make it longer
  Retention retention;
};

struct ReclaimPlan {
  uint64_t segment = 0;
  std::vector<kv::BlockKey> move;   // in file order
  std::vector<kv::BlockKey> evict;  // valuable still
  std::vector<kv::BlockKey> expire;
};

// Single-threaded.
class Catalog {
 public:
  explicit Catalog(CatalogOptions options);

  // ---- rows. An expired row counts as absent.
  const IndexRow* Find(const kv::BlockKey& key, int64_t now_s) const;
  uint32_t ContainsPrefix(std::span<const kv::BlockKey> keys, int64_t now_s) const;
  // Replaces the key's row, and the row of a key at the same place. Precondition: its segment was added.
  void Insert(const IndexRow& row);
  std::vector<IndexRow> Rows() const;  // expired ones too
  void Erase(const kv::BlockKey& key);
  void Touch(const kv::BlockKey& key);                                                            // it was read
  RecordHeader Describe(const kv::BlockKey& key, RetentionClass retention, int64_t now_s) const;  // times filled in

  // ---- segments
  void AddSegment(uint64_t id, uint64_t bytes);  // one found on disk, sealed
  void Activate(uint64_t id);                    // appended to from now on; the one before is sealed
  void SetSegmentBytes(uint64_t id, uint64_t bytes);
  void RemoveSegment(uint64_t id);  // its file is gone, and with it every row that points into it
  std::optional<uint64_t> active() const { return active_; }
  uint64_t segment_bytes(uint64_t id) const;  // precondition: added
  bool FitsActive(uint64_t record_bytes) const;

  // ---- room
  bool HasRoom(uint64_t bytes) const;
  // The next sealed segment to give up, or empty when all that is left is guaranteed.
  std::optional<ReclaimPlan> PlanReclaim(int64_t now_s) const;
  // Sealed segments with nothing but expired and dead records.
  std::vector<ReclaimPlan> PlanExpiry(int64_t now_s) const;

  uint64_t blocks() const { return rows_.size(); }
  uint64_t live_bytes() const { return live_bytes_; }  // of records in the index
  uint64_t file_bytes() const { return file_bytes_; }  // of all segments
  uint64_t segments() const { return segments_.size(); }
  const CatalogOptions& options() const { return options_; }

 private:
  struct Slot {
    IndexRow row;
    uint64_t last_used = 0;
    bool hit = false;  // read since it was inserted
  };
  struct Segment {
    uint64_t bytes = 0;
    std::map<uint64_t, kv::BlockKey> rows;  // by offset
  };
  struct Candidate;

  bool Guaranteed(const IndexRow& row, int64_t now_s) const;
  std::optional<Candidate> Judge(uint64_t id, const Segment& segment, int64_t now_s) const;
  ReclaimPlan Plan(uint64_t id, const Segment& segment, int64_t now_s) const;

  const CatalogOptions options_;
  std::map<kv::BlockKey, Slot> rows_;
  std::map<uint64_t, Segment> segments_;
  std::optional<uint64_t> active_;
  uint64_t uses_ = 0;  // a clock of inserts and reads
  uint64_t live_bytes_ = 0;
  uint64_t file_bytes_ = 0;
};

}  // namespace millrace::store
