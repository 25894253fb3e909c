#include "common/store/rocksdb/segment_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"

namespace millrace::store {
namespace {

constexpr size_t kVectorsPerCall = 512;  // IOV_MAX is 1024
constexpr size_t kScanBytes = 1 << 20;
constexpr std::array<std::byte, kRecordAlign> kZeros{};

Status WriteError(int error, const std::string& path) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return {Code::kResourceExhausted, Reason::kNoSpace, ErrnoStatus(error, "write " + path).message()};
  }
  return ErrnoStatus(error, "write " + path);
}

Status Damaged(const std::string& path, uint64_t offset, const std::string& what) {
  return {Code::kDataLoss, Reason::kKvCorrupt, path + " at " + std::to_string(offset) + ": " + what};
}

// Drops the first `bytes` of what `vectors` describe.
void Consume(std::span<iovec>& vectors, size_t bytes) {
  while (!vectors.empty() && bytes >= vectors.front().iov_len) {
    bytes -= vectors.front().iov_len;
    vectors = vectors.subspan(1);
  }
  if (bytes > 0) {
    vectors.front().iov_base = static_cast<char*>(vectors.front().iov_base) + bytes;
    vectors.front().iov_len -= bytes;
  }
}

// False at the end of the file or after an error (errno 0 at the end).
bool ReadFully(int fd, uint64_t offset, std::span<iovec> vectors) {
  while (!vectors.empty()) {
    const ssize_t n = preadv(fd, vectors.data(), static_cast<int>(vectors.size()), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = 0;
      return false;
    }
    offset += static_cast<uint64_t>(n);
    Consume(vectors, static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

StatusOr<std::unique_ptr<SegmentFile>> SegmentFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return errno == ENOSPC ? WriteError(errno, path) : ErrnoStatus(errno, "create " + path);
  return std::unique_ptr<SegmentFile>(new SegmentFile(fd, path));
}

StatusOr<std::unique_ptr<SegmentFile>> SegmentFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open " + path);
  return std::unique_ptr<SegmentFile>(new SegmentFile(fd, path));
}

SegmentFile::~SegmentFile() { close(fd_); }

StatusOr<uint64_t> SegmentFile::Size() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "stat " + path_);
  return static_cast<uint64_t>(info.st_size);
}

Status SegmentFile::WriteAt(uint64_t offset, std::span<const RecordToWrite> records) {
  std::vector<RecordHeaderBytes> headers;
  headers.reserve(records.size());
  std::vector<iovec> vectors;
  for (const auto& record : records) {
    headers.push_back(EncodeRecordHeader(record.header));
    const size_t used = kRecordHeaderBytes + record.payload.size();
    const size_t padding = RecordBytes(record.header.length) - used;
    vectors.push_back({headers.back().data(), kRecordHeaderBytes});
    vectors.push_back({const_cast<std::byte*>(record.payload.data()), record.payload.size()});
    if (padding > 0) vectors.push_back({const_cast<std::byte*>(kZeros.data()), padding});
  }
  std::span<iovec> left(vectors);
  while (!left.empty()) {
    const int count = static_cast<int>(std::min(left.size(), kVectorsPerCall));
    const ssize_t n = pwritev(fd_, left.data(), count, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteError(errno, path_);
    if (n == 0) return WriteError(ENOSPC, path_);
    offset += static_cast<uint64_t>(n);
    Consume(left, static_cast<size_t>(n));
  }
  return OkStatus();
}

Status SegmentFile::Sync() { return fdatasync(fd_) == 0 ? OkStatus() : WriteError(errno, path_); }

Status SegmentFile::Truncate(uint64_t size) {
  return ftruncate(fd_, static_cast<off_t>(size)) == 0 ? OkStatus() : ErrnoStatus(errno, "truncate " + path_);
}

Status SegmentFile::ReadAt(uint64_t offset, const RecordHeader& expected, std::span<std::byte> payload) const {
  RecordHeaderBytes bytes;
  std::array<iovec, 2> vectors{{{bytes.data(), bytes.size()}, {payload.data(), payload.size()}}};
  if (!ReadFully(fd_, offset, vectors)) {
    return Damaged(path_, offset, errno == 0 ? "the file ends early" : ErrnoStatus(errno, "read").message());
  }
  const auto header = DecodeRecordHeader(bytes);
  if (!header.has_value()) return Damaged(path_, offset, "damaged record header");
  if (header->key != expected.key || header->length != expected.length || header->crc32c != expected.crc32c ||
      payload.size() != expected.length) {
    return Damaged(path_, offset, "another block than the index says");
  }
  if (Crc32c(payload.data(), payload.size()) != expected.crc32c) return Damaged(path_, offset, "checksum mismatch");
  return OkStatus();
}

bool SegmentFile::PayloadIntact(uint64_t offset, const RecordHeader& header) const {
  std::vector<std::byte> buffer(std::min<size_t>(header.length, kScanBytes));
  uint32_t crc32c = 0;
  for (uint64_t done = 0; done < header.length;) {
    const size_t size = std::min<uint64_t>(buffer.size(), header.length - done);
    iovec vector{buffer.data(), size};
    if (!ReadFully(fd_, offset + kRecordHeaderBytes + done, {&vector, 1})) return false;
    crc32c = Crc32c(buffer.data(), size, crc32c);
    done += size;
  }
  return crc32c == header.crc32c;
}

StatusOr<uint64_t> SegmentFile::Scan(
    uint64_t from, const std::function<void(uint64_t offset, const RecordHeader& header)>& found) const {
  MR_ASSIGN_OR_RETURN(const uint64_t size, Size());
  uint64_t end = from;
  for (uint64_t offset = from; offset + kRecordHeaderBytes <= size;) {
    RecordHeaderBytes bytes;
    iovec vector{bytes.data(), bytes.size()};
    if (!ReadFully(fd_, offset, {&vector, 1})) return ErrnoStatus(errno, "read " + path_);
    const auto header = DecodeRecordHeader(bytes);
    if (!header.has_value() || !PayloadIntact(offset, *header)) {
      offset += kRecordAlign;
      continue;
    }
    found(offset, *header);
    offset += RecordBytes(header->length);
    end = offset;
  }
  return end;
}

}  // namespace millrace::store
