#pragma once
// The durable index: for each key where its record lies, for each segment how far the index has seen it. A cache of
// what the segments say: it can always be built again from them.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/store/record.h"

namespace millrace::store {

enum class SegmentState : uint8_t { kKept = 0, kDropped = 1 };  // dropped: its file may still be there, to be removed

struct SegmentMark {
  SegmentState state = SegmentState::kKept;
  uint64_t indexed_bytes = 0;  // records below it are in the index, or were given up
};

// One atomic change.
struct IndexChange {
  std::vector<IndexRow> put;
  std::vector<kv::BlockKey> erase;
  std::vector<std::pair<uint64_t, SegmentMark>> marks;
  std::vector<uint64_t> forget_segments;
};

struct IndexContent {
  std::vector<IndexRow> rows;
  std::map<uint64_t, SegmentMark> marks;
};

// Thread-safe.
class BlockIndex {
 public:
  // Reads all of it. Any error means that it cannot be trusted.
  static StatusOr<std::unique_ptr<BlockIndex>> Open(const std::string& folder, IndexContent& content);
  // Only reads it: writes nothing.
  static Status Read(const std::string& folder, IndexContent& content);
  ~BlockIndex();

  // Survives this process; with `sync` also a power cut. A medium without room: kResourceExhausted(kNoSpace). After an
  // error the change may be there or not; destroy this one and open the index again.
  Status Commit(const IndexChange& change, bool sync);
  Status Close();  // makes everything durable; no Commit before it failed, none after it

 private:
  struct State;
  explicit BlockIndex(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace millrace::store
