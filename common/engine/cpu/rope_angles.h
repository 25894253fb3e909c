#pragma once
// Rotary angles, computed in double with functions of our own, so that every machine and C library gives the same bits.

#include <cstdint>
#include <span>
#include <vector>

namespace millrace::engine::cpu {

// frequency[i] = base^(-2i / dims) / scale / factors[i], dims / 2 of them; `factors` may be empty.
std::vector<double> RopeFrequencies(double base, uint32_t dims, double scale, std::span<const float> factors);

// cos and sin of position * frequency[i], for each i.
void RopeAngles(std::span<const double> frequencies, uint32_t position, float* cos, float* sin);

}  // namespace millrace::engine::cpu
