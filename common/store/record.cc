#include "common/store/record.h"

#include <cstring>
#include <type_traits>

#include "common/base/crc32c.h"

namespace millrace::store {
namespace {

constexpr uint32_t kMagic = 0x564B524D;  // "MRKV"
constexpr size_t kHeaderCrcAt = kRecordHeaderBytes - 4;
constexpr size_t kIndexRowBytes = 48;

class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <class T>
  Writer& Put(T value) {
    const auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) *at_++ = static_cast<std::byte>(static_cast<uint64_t>(bits) >> (8 * i));
    return *this;
  }
  Writer& Put(const kv::BlockKey& key) {
    std::memcpy(at_, key.bytes.data(), key.bytes.size());
    at_ += key.bytes.size();
    return *this;
  }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  template <class T>
  T Get() {
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) bits |= static_cast<uint64_t>(*at_++) << (8 * i);
    return static_cast<T>(bits);
  }
  kv::BlockKey GetKey() {
    kv::BlockKey key;
    std::memcpy(key.bytes.data(), at_, key.bytes.size());
    at_ += key.bytes.size();
    return key;
  }

 private:
  const std::byte* at_;
};

bool Plausible(uint8_t retention, uint32_t length) {
  return retention < kRetentionClasses && length > 0 && length <= kMaxPayloadBytes;
}

}  // namespace

RecordHeaderBytes EncodeRecordHeader(const RecordHeader& header) {
  RecordHeaderBytes bytes{};
  Writer(bytes.data())
      .Put(kMagic)
      .Put(kRecordVersion)
      .Put(static_cast<uint8_t>(header.retention))
      .Put(uint8_t{0})
      .Put(header.key)
      .Put(header.length)
      .Put(header.crc32c)
      .Put(header.written_s)
      .Put(header.expires_s);
  Writer(bytes.data() + kHeaderCrcAt).Put(Crc32c(bytes.data(), kHeaderCrcAt));
  return bytes;
}

std::optional<RecordHeader> DecodeRecordHeader(const RecordHeaderBytes& bytes) {
  Reader reader(bytes.data());
  if (reader.Get<uint32_t>() != kMagic) return std::nullopt;
  if (Reader(bytes.data() + kHeaderCrcAt).Get<uint32_t>() != Crc32c(bytes.data(), kHeaderCrcAt)) return std::nullopt;
  if (reader.Get<uint16_t>() != kRecordVersion) return std::nullopt;
  const auto retention = reader.Get<uint8_t>();
  reader.Get<uint8_t>();
  RecordHeader header;
  header.key = reader.GetKey();
  header.length = reader.Get<uint32_t>();
  header.crc32c = reader.Get<uint32_t>();
  header.written_s = reader.Get<int64_t>();
  header.expires_s = reader.Get<int64_t>();
  if (!Plausible(retention, header.length)) return std::nullopt;
  header.retention = static_cast<RetentionClass>(retention);
  return header;
}

std::string EncodeIndexRow(const IndexRow& row) {
  std::string bytes(kIndexRowBytes, '\0');
  Writer(reinterpret_cast<std::byte*>(bytes.data()))
      .Put(kRecordVersion)
      .Put(static_cast<uint8_t>(row.header.retention))
      .Put(uint8_t{0})
      .Put(row.header.length)
      .Put(row.segment)
      .Put(row.offset)
      .Put(row.header.crc32c)
      .Put(uint32_t{0})
      .Put(row.header.written_s)
      .Put(row.header.expires_s);
  return bytes;
}

std::optional<IndexRow> DecodeIndexRow(const kv::BlockKey& key, std::string_view bytes) {
  if (bytes.size() != kIndexRowBytes) return std::nullopt;
  Reader reader(reinterpret_cast<const std::byte*>(bytes.data()));
  if (reader.Get<uint16_t>() != kRecordVersion) return std::nullopt;
  const auto retention = reader.Get<uint8_t>();
  reader.Get<uint8_t>();
  IndexRow row;
  row.header.key = key;
  row.header.length = reader.Get<uint32_t>();
  row.segment = reader.Get<uint64_t>();
  row.offset = reader.Get<uint64_t>();
  row.header.crc32c = reader.Get<uint32_t>();
  reader.Get<uint32_t>();
  row.header.written_s = reader.Get<int64_t>();
  row.header.expires_s = reader.Get<int64_t>();
  if (!Plausible(retention, row.header.length)) return std::nullopt;
  row.header.retention = static_cast<RetentionClass>(retention);
  return row;
}

}  // namespace millrace::store
