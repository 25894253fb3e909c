#pragma once
// Deterministic random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// The same key and counter give the same bits on every machine and compiler. Nothing durable or simulated uses the
// standard library's distributions or shuffle.

#include <array>
#include <cstdint>

namespace millrace {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) from 24 bits, exactly representable in float.
constexpr float UniformFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// A stream of random numbers over one seed. Not thread-safe.
class Rng {
 public:
  explicit Rng(uint64_t seed) : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}
  uint32_t Next32();
  uint64_t Next64() { return (uint64_t{Next32()} << 32) | Next32(); }
  // Uniform in [0, bound); bound > 0. Unbiased.
  uint64_t Below(uint64_t bound);
  double Uniform() { return static_cast<double>(Next64() >> 11) * 0x1p-53; }

 private:
  std::array<uint32_t, 2> key_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> buffer_{};
  unsigned used_ = 4;
};

// From the operating system's entropy; for seeds and incarnation ids only. Never 0.
uint64_t RandomSeed();

}  // namespace millrace
