#pragma once
// Bytes on disk. A segment file is a sequence of records, each at a multiple of kRecordAlign:
//
//   header (64 bytes, little endian) | payload | zeros up to kRecordAlign
//   header: magic u32, version u16, class u8, 0 u8, key 16, length u32, payload CRC32C u32, written i64, expires i64,
//           0 (12 bytes), CRC32C of the 60 bytes before u32
//
// A record describes itself, so the index can always be built again from the segments. An index row is what the index
// holds for one key.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/kv/block_key.h"
#include "common/store/retention.h"

namespace millrace::store {

constexpr size_t kRecordHeaderBytes = 64;
constexpr uint64_t kRecordAlign = 4096;
constexpr uint16_t kRecordVersion = 1;
constexpr uint32_t kMaxPayloadBytes = 1u << 30;

struct RecordHeader {
  kv::BlockKey key;
  RetentionClass retention = RetentionClass::kChat;
  uint32_t length = 0;  // of the payload
  uint32_t crc32c = 0;  // of the payload
  int64_t written_s = 0;
  int64_t expires_s = 0;
  friend bool operator==(const RecordHeader&, const RecordHeader&) = default;
};

using RecordHeaderBytes = std::array<std::byte, kRecordHeaderBytes>;

// Bytes of a whole record, padding included.
constexpr uint64_t RecordBytes(uint32_t length) {
  return (kRecordHeaderBytes + length + kRecordAlign - 1) / kRecordAlign * kRecordAlign;
}

RecordHeaderBytes EncodeRecordHeader(const RecordHeader& header);
// Empty when the bytes are not an intact header of a version we know.
std::optional<RecordHeader> DecodeRecordHeader(const RecordHeaderBytes& bytes);

struct IndexRow {
  uint64_t segment = 0;
  uint64_t offset = 0;  // of the record header in the segment
  RecordHeader header;
  friend bool operator==(const IndexRow&, const IndexRow&) = default;
};

// The row without its key, which is the index's own key.
std::string EncodeIndexRow(const IndexRow& row);
std::optional<IndexRow> DecodeIndexRow(const kv::BlockKey& key, std::string_view bytes);

}  // namespace millrace::store
