#pragma once
// 16 virtual lanes in one 512-bit register. Included by kernels_avx512.cc alone.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define MR_KERNEL static inline __attribute__((always_inline))

namespace millrace::engine::cpu::avx512 {

using VF = __m512;
using VI = __m512i;

// Register tiles, chosen for 32 registers.
constexpr int kDotPanels = 2, kDotTokens = 3;
constexpr int kFloatPanels = 2, kFloatTokens = 6;
constexpr int kQueryRows = 6, kQueryVectors = 4;

MR_KERNEL VF Load(const float* p) { return _mm512_loadu_ps(p); }
MR_KERNEL void Store(float* p, VF v) { _mm512_storeu_ps(p, v); }
MR_KERNEL VF Set(float x) { return _mm512_set1_ps(x); }
MR_KERNEL VF Zero() { return _mm512_setzero_ps(); }
MR_KERNEL VF Fma(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
MR_KERNEL VF Mul(VF a, VF b) { return _mm512_mul_ps(a, b); }
MR_KERNEL VF Add(VF a, VF b) { return _mm512_add_ps(a, b); }
MR_KERNEL VF Sub(VF a, VF b) { return _mm512_sub_ps(a, b); }
MR_KERNEL VF Div(VF a, VF b) { return _mm512_div_ps(a, b); }
MR_KERNEL VF Max(VF a, VF b) { return _mm512_max_ps(a, b); }
MR_KERNEL VF Min(VF a, VF b) { return _mm512_min_ps(a, b); }
MR_KERNEL VF Abs(VF a) { return _mm512_abs_ps(a); }
MR_KERNEL VF RoundNearest(VF a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
MR_KERNEL VF LoadHalf(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
MR_KERNEL void StoreHalf(void* p, VF v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
MR_KERNEL VF LoadBrain(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
MR_KERNEL VF ToFloat(VI v) { return _mm512_cvtepi32_ps(v); }
// 2^n for integral n in [-126, 127].
MR_KERNEL VF PowerOfTwo(VF n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
// Lane i of `value` where first + i < limit, else of `other`.
MR_KERNEL VF SelectBelow(int first, int limit, VF value, VF other) {
  const int count = limit - first;
  const __mmask16 mask = count >= 16 ? 0xFFFF : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
  return _mm512_mask_blend_ps(mask, other, value);
}
// Lane i of `value` where x >= bound, else 0.
MR_KERNEL VF ZeroBelow(VF x, VF bound, VF value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), value);
}
// Halves added, then quarters, and so on: ((0+8)+(4+12)) + ...
MR_KERNEL float ReduceAdd(VF v) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 e = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(e, _mm_shuffle_ps(e, e, 1)));
}
MR_KERNEL float ReduceMax(VF v) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 e = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(e, _mm_shuffle_ps(e, e, 1)));
}

// 16 floats to 8 bits (nearest, ties to even); returns their sum.
// 256 * coarse + fine.
MR_KERNEL VI Combine(VI coarse, VI fine) { return _mm512_add_epi32(_mm512_slli_epi32(coarse, 8), fine); }

MR_KERNEL int StoreCodes(int8_t* out, VF v) {
  const __m512i wide = _mm512_cvtps_epi32(v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtsepi32_epi8(wide));
  return _mm512_reduce_add_epi32(wide);
}

MR_KERNEL void Transpose(VF (&v)[16]) {
  __m512 a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xEE);
    b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88);
    a[i + 4] = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xDD);
    a[i + 8] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
    a[i + 12] = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xDD);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0xDD);
    v[i + 4] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0x88);
    v[i + 12] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0xDD);
  }
}

MR_KERNEL VI Broadcast4(const int8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

// dots[p][t] = exact sum over one block of (code - zero) * x. `codes` is the block's codes in the first panel.
template <int P, int T, int kZeroShift>
MR_KERNEL void DotBlock4(const uint8_t* codes, size_t panel_bytes, const int8_t* x, size_t pitch,
                         const int32_t* negated_sums, size_t sums_pitch, VI (&dots)[P][T]) {
  const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const VI start = kZeroShift == 0 ? _mm512_setzero_si512()
                                     : _mm512_slli_epi32(_mm512_set1_epi32(negated_sums[t * sums_pitch]), kZeroShift);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) dots[p][t] = start;
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    __m512i low[P], high[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const __m512i both = _mm512_loadu_si512(codes + p * panel_bytes + j * 64);
      low[p] = _mm512_and_si512(both, nibble);
      high[p] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512i x_low = Broadcast4(x + t * pitch + 4 * j);
      const __m512i x_high = Broadcast4(x + t * pitch + 4 * j + 16);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        dots[p][t] = _mm512_dpbusd_epi32(dots[p][t], low[p], x_low);
        dots[p][t] = _mm512_dpbusd_epi32(dots[p][t], high[p], x_high);
      }
    }
  }
}

template <int P, int T>
MR_KERNEL void DotBlock8(const uint8_t* codes, size_t panel_bytes, const int8_t* x, size_t pitch,
                         const int32_t* negated_sums, size_t sums_pitch, VI (&dots)[P][T]) {
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    const VI start = _mm512_slli_epi32(_mm512_set1_epi32(negated_sums[t * sums_pitch]), 7);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) dots[p][t] = start;
  }
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    __m512i w[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) w[p] = _mm512_loadu_si512(codes + p * panel_bytes + j * 64);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m512i word = Broadcast4(x + t * pitch + 4 * j);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) dots[p][t] = _mm512_dpbusd_epi32(dots[p][t], w[p], word);
    }
  }
}

}  // namespace millrace::engine::cpu::avx512
