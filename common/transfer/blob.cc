#include "common/transfer/blob.h"

#include <cstring>

#include "common/base/crc32c.h"
#include "common/base/random.h"

namespace millrace::transfer {
namespace {

constexpr std::string_view kMagic = "MRT";
constexpr uint8_t kVersion = 1;
constexpr size_t kHeaderBytes = 3 + 1 + 1 + 4;
constexpr size_t kTrailerBytes = 4;

void AppendLittle(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t ReadLittle(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

TransportId NewTransportId() {
  TransportId id;
  for (size_t half = 0; half < 2; ++half) {
    const uint64_t bits = RandomSeed();
    std::memcpy(id.data() + 8 * half, &bits, sizeof bits);
  }
  return id;
}

BlobWriter& BlobWriter::U8(uint8_t value) {
  AppendLittle(body_, value, 1);
  return *this;
}

BlobWriter& BlobWriter::U64(uint64_t value) {
  AppendLittle(body_, value, 8);
  return *this;
}

BlobWriter& BlobWriter::Bytes(std::string_view bytes) {
  AppendLittle(body_, bytes.size(), 4);
  body_.append(bytes);
  return *this;
}

BlobWriter& BlobWriter::Id(const TransportId& id) {
  body_.append(reinterpret_cast<const char*>(id.data()), id.size());
  return *this;
}

std::string BlobWriter::Finish(BlobKind kind) const {
  std::string blob(kMagic);
  blob.push_back(static_cast<char>(kind));
  blob.push_back(static_cast<char>(kVersion));
  AppendLittle(blob, body_.size(), 4);
  blob += body_;
  AppendLittle(blob, Crc32c(blob.data(), blob.size()), 4);
  return blob;
}

StatusOr<BlobReader> BlobReader::Open(BlobKind kind, std::string_view blob) {
  const std::string what = kind == BlobKind::kAddress ? "transport address" : "region descriptor";
  if (blob.size() < kHeaderBytes + kTrailerBytes || !blob.starts_with(kMagic) ||
      blob[kMagic.size()] != static_cast<char>(kind)) {
    return InvalidArgument("not a " + what);
  }
  if (const uint8_t version = static_cast<uint8_t>(blob[4]); version != kVersion) {
    return InvalidArgument(what + " of version " + std::to_string(version) + ", this build reads " +
                           std::to_string(kVersion));
  }
  const size_t body = blob.size() - kHeaderBytes - kTrailerBytes;
  if (ReadLittle(blob.substr(5, 4)) != body) return InvalidArgument(what + " is cut short or too long");
  if (ReadLittle(blob.substr(kHeaderBytes + body)) != Crc32c(blob.data(), kHeaderBytes + body)) {
    return InvalidArgument(what + " is damaged: its checksum differs");
  }
  return BlobReader(blob.substr(kHeaderBytes, body));
}

std::string_view BlobReader::Take(size_t size) {
  if (!ok_ || size > body_.size()) {
    ok_ = false;
    return {};
  }
  const std::string_view taken = body_.substr(0, size);
  body_.remove_prefix(size);
  return taken;
}

uint8_t BlobReader::U8() { return static_cast<uint8_t>(ReadLittle(Take(1))); }
uint64_t BlobReader::U64() { return ReadLittle(Take(8)); }
std::string_view BlobReader::Bytes() { return Take(ReadLittle(Take(4))); }

TransportId BlobReader::Id() {
  TransportId id{};
  const std::string_view bytes = Take(id.size());
  if (bytes.size() == id.size()) std::memcpy(id.data(), bytes.data(), bytes.size());
  return id;
}

}  // namespace millrace::transfer
