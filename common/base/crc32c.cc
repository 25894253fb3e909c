#include "common/base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace millrace {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;
constexpr size_t kLane = 1024;  // bytes of each of three interleaved lanes: the instruction has latency 3, throughput 1

// kShift[k][b]: the CRC register after byte value b at position k has been followed by kLane zero bytes.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

constexpr uint32_t MultiplyModP(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b & 1) ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

constexpr uint32_t XPowerModP(uint64_t exponent) {
  uint32_t result = 1u << 31, base = 1u << 30;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = MultiplyModP(base, result);
    base = MultiplyModP(base, base);
  }
  return result;
}

const ShiftTable& LaneShift() {
  static const ShiftTable table = [] {
    ShiftTable t{};
    const uint32_t power = XPowerModP(8 * kLane);
    for (int k = 0; k < 4; ++k)
      for (uint32_t b = 0; b < 256; ++b) t[k][b] = MultiplyModP(power, b << (8 * k));
    return t;
  }();
  return table;
}

uint32_t ShiftLane(const ShiftTable& t, uint32_t crc) {
  return t[0][crc & 0xff] ^ t[1][(crc >> 8) & 0xff] ^ t[2][(crc >> 16) & 0xff] ^ t[3][crc >> 24];
}

uint64_t Load64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}

__attribute__((target("sse4.2"))) uint32_t Update(uint32_t state, const uint8_t* p, size_t n) {
  uint64_t c0 = state;
  if (n >= 3 * kLane) {
    const ShiftTable& shift = LaneShift();
    for (; n >= 3 * kLane; n -= 3 * kLane, p += 3 * kLane) {
      uint64_t c1 = 0, c2 = 0;
      for (size_t i = 0; i < kLane; i += 8) {
        c0 = _mm_crc32_u64(c0, Load64(p + i));
        c1 = _mm_crc32_u64(c1, Load64(p + kLane + i));
        c2 = _mm_crc32_u64(c2, Load64(p + 2 * kLane + i));
      }
      c0 = ShiftLane(shift, static_cast<uint32_t>(c0)) ^ c1;
      c0 = ShiftLane(shift, static_cast<uint32_t>(c0)) ^ c2;
    }
  }
  for (; n >= 8; n -= 8, p += 8) c0 = _mm_crc32_u64(c0, Load64(p));
  for (; n != 0; --n, ++p) c0 = _mm_crc32_u8(static_cast<uint32_t>(c0), *p);
  return static_cast<uint32_t>(c0);
}

}  // namespace

uint32_t Crc32c(const void* data, size_t size, uint32_t crc) {
  return ~Update(~crc, static_cast<const uint8_t*>(data), size);
}

}  // namespace millrace
