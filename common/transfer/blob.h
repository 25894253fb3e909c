#pragma once
// The envelope of addresses and descriptors: bytes that travel over the control plane and may arrive damaged, cut or
// from another version.
//
//   magic "MRT" + kind (1 byte) | version u8 | body length u32 | body | CRC32C of all before it, u32      little-endian

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace millrace::transfer {

enum class BlobKind : uint8_t { kAddress = 'A', kRegion = 'R' };

// 128 random bits that name one transport object of one process.
using TransportId = std::array<uint8_t, 16>;
TransportId NewTransportId();

class BlobWriter {
 public:
  BlobWriter& U8(uint8_t value);
  BlobWriter& U64(uint64_t value);
  BlobWriter& Bytes(std::string_view bytes);  // at most 64 KiB, with its length before it
  BlobWriter& Id(const TransportId& id);
  std::string Finish(BlobKind kind) const;

 private:
  std::string body_;
};

// Reads a body field by field. After the first field that does not fit, every field reads as empty and ok() is false.
class BlobReader {
 public:
  // kInvalidArgument unless `blob` is a whole, undamaged blob of this kind and version. Keeps a view of `blob`.
  static StatusOr<BlobReader> Open(BlobKind kind, std::string_view blob);

  uint8_t U8();
  uint64_t U64();
  std::string_view Bytes();
  TransportId Id();
  // Nothing failed and nothing is left over.
  bool complete() const { return ok_ && body_.empty(); }

 private:
  explicit BlobReader(std::string_view body) : body_(body) {}
  std::string_view Take(size_t size);

  std::string_view body_;
  bool ok_ = true;
};

}  // namespace millrace::transfer
