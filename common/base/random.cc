#include "common/base/random.h"

#include <random>

namespace millrace {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMul0 * counter[0], p1 = kMul1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint32_t Rng::Next32() {
  if (used_ == 4) {
    buffer_ = Philox4x32({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32), 0, 0}, key_);
    ++counter_;
    used_ = 0;
  }
  return buffer_[used_++];
}

uint64_t Rng::Below(uint64_t bound) {
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t value = Next64();
  while (value >= limit) value = Next64();
  return value % bound;
}

uint64_t RandomSeed() {
  std::random_device device;
  uint64_t seed = 0;
  while (seed == 0) seed = (uint64_t{device()} << 32) | device();
  return seed;
}

}  // namespace millrace
