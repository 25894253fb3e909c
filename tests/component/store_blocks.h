#pragma once
// Keys and contents of test blocks: the content of block `n` follows from `n`.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/kv/block_key.h"

namespace millrace::runtime {

inline kv::BlockKey TestKey(uint32_t n) {
  kv::BlockKey key;
  key.bytes[0] = 0x5a;
  for (int i = 0; i < 4; ++i) key.bytes[12 + i] = static_cast<uint8_t>(n >> (24 - 8 * i));
  return key;
}

inline std::vector<kv::BlockKey> TestKeys(uint32_t from, uint32_t to) {
  std::vector<kv::BlockKey> keys;
  for (uint32_t n = from; n < to; ++n) keys.push_back(TestKey(n));
  return keys;
}

inline void FillBlock(std::span<std::byte> block, uint32_t n) {
  Rng rng(n + 1);
  for (auto& byte : block) byte = static_cast<std::byte>(rng.Next32());
}
inline bool IsBlock(std::span<const std::byte> block, uint32_t n) {
  std::vector<std::byte> expected(block.size());
  FillBlock(expected, n);
  return std::memcmp(block.data(), expected.data(), block.size()) == 0;
}
inline uint32_t BlockCrc(std::span<const std::byte> block) { return Crc32c(block.data(), block.size()); }

}  // namespace millrace::runtime
