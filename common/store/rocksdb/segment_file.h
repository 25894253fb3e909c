#pragma once
// One append-only file of records (common/store/record.h). Reads may run beside each other and beside an append; an
// open file stays readable after it was unlinked.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/store/record.h"

namespace millrace::store {

struct RecordToWrite {
  RecordHeader header;
  std::span<const std::byte> payload;
};

class SegmentFile {
 public:
  static StatusOr<std::unique_ptr<SegmentFile>> Create(const std::string& path);  // kAlreadyExists
  static StatusOr<std::unique_ptr<SegmentFile>> Open(const std::string& path);
  ~SegmentFile();
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;

  StatusOr<uint64_t> Size() const;
  // Writes the records one after the other at `offset`, in as few calls as the system takes. After an error what lies
  // beyond `offset` is undefined. No room: kResourceExhausted(kNoSpace).
  Status WriteAt(uint64_t offset, std::span<const RecordToWrite> records);
  Status Sync();
  Status Truncate(uint64_t size);

  // Reads the record at `offset`, whose header must be `expected`, into `payload`. kDataLoss(kKvCorrupt) when anything
  // about it is wrong.
  Status ReadAt(uint64_t offset, const RecordHeader& expected, std::span<std::byte> payload) const;

  // Calls `found` for each intact record (payload checked) from `from` on; skips over damage to the next intact one.
  // Returns the end of the last one, padding included, or `from`.
  StatusOr<uint64_t> Scan(uint64_t from,
                          const std::function<void(uint64_t offset, const RecordHeader& header)>& found) const;

 private:
  SegmentFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  bool PayloadIntact(uint64_t offset, const RecordHeader& header) const;

  const int fd_;
  const std::string path_;
};

}  // namespace millrace::store
