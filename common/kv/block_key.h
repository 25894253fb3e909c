#pragma once
// Block keys: the name of a full block of KV, a function of everything that decides its content. Used unchanged by the
// gateway, the workers and the store; tests/unit/kv/block_key_vectors.json holds the vectors that any other
// implementation must meet.
//
//   root      = SHA-256("millrace-block-root" 0x00 layout_digest 0x00 tenant_salt)[0..16)
//   key(i)    = SHA-256(key(i-1) | ids[64 i .. 64 i + 64) as little-endian int32)[0..16), key(-1) = root

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/kv/layout.h"

namespace millrace::kv {

struct BlockKey {
  std::array<uint8_t, 16> bytes{};
  std::string ToHex() const;
  std::string_view AsBytes() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  friend auto operator<=>(const BlockKey&, const BlockKey&) = default;
};

BlockKey RootKey(std::string_view layout_digest, std::string_view tenant_salt);
// `ids` holds exactly kBlockTokens ids.
BlockKey ChildKey(const BlockKey& parent, std::span<const int32_t> ids);
// Keys of the full blocks of `ids`, in order.
std::vector<BlockKey> BlockKeys(const BlockKey& root, std::span<const int32_t> ids);

}  // namespace millrace::kv
