#pragma once
// 16 virtual lanes in two 256-bit registers. Included by kernels_avx2.cc alone.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define MR_KERNEL static inline __attribute__((always_inline))

namespace millrace::engine::cpu::avx2 {

struct VF {
  __m256 a, b;
};
struct VI {
  __m256i a, b;
};

// Register tiles, chosen for 16 registers.
constexpr int kDotPanels = 1, kDotTokens = 2;
constexpr int kFloatPanels = 1, kFloatTokens = 5;
constexpr int kQueryRows = 3, kQueryVectors = 2;

MR_KERNEL VF Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
MR_KERNEL void Store(float* p, VF v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
MR_KERNEL VF Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
MR_KERNEL VF Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
MR_KERNEL VF Fma(VF x, VF y, VF z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
MR_KERNEL VF Mul(VF x, VF y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
MR_KERNEL VF Add(VF x, VF y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
MR_KERNEL VF Sub(VF x, VF y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
MR_KERNEL VF Div(VF x, VF y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
MR_KERNEL VF Max(VF x, VF y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
MR_KERNEL VF Min(VF x, VF y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
MR_KERNEL VF Abs(VF x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
MR_KERNEL VF RoundNearest(VF x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
MR_KERNEL VF LoadHalf(const void* p) {
  const __m128i* half = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(half)), _mm256_cvtph_ps(_mm_loadu_si128(half + 1))};
}
MR_KERNEL void StoreHalf(void* p, VF v) {
  __m128i* half = static_cast<__m128i*>(p);
  _mm_storeu_si128(half, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(half + 1, _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
MR_KERNEL __m256 WidenBrain(const __m128i* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
MR_KERNEL VF LoadBrain(const void* p) {
  const __m128i* half = static_cast<const __m128i*>(p);
  return {WidenBrain(half), WidenBrain(half + 1)};
}
MR_KERNEL VF ToFloat(VI v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
MR_KERNEL __m256 PowerOfTwo(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
// 2^n for integral n in [-126, 127].
MR_KERNEL VF PowerOfTwo(VF n) { return {PowerOfTwo(n.a), PowerOfTwo(n.b)}; }
// Lane i of `value` where first + i < limit, else of `other`.
MR_KERNEL VF SelectBelow(int first, int limit, VF value, VF other) {
  const __m256i count = _mm256_set1_epi32(limit - first);
  const __m256i low = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i high = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
  return {_mm256_blendv_ps(other.a, value.a, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other.b, value.b, _mm256_castsi256_ps(high))};
}
// Lane i of `value` where x >= bound, else 0.
MR_KERNEL VF ZeroBelow(VF x, VF bound, VF value) {
  return {_mm256_and_ps(value.a, _mm256_cmp_ps(x.a, bound.a, _CMP_GE_OQ)),
          _mm256_and_ps(value.b, _mm256_cmp_ps(x.b, bound.b, _CMP_GE_OQ))};
}
// Halves added, then quarters, and so on: ((0+8)+(4+12)) + ...
MR_KERNEL float ReduceAdd(VF v) {
  const __m256 h = _mm256_add_ps(v.a, v.b);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 e = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(e, _mm_shuffle_ps(e, e, 1)));
}
MR_KERNEL float ReduceMax(VF v) {
  const __m256 h = _mm256_max_ps(v.a, v.b);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 e = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(e, _mm_shuffle_ps(e, e, 1)));
}

// 16 floats to 8 bits (nearest, ties to even); returns their sum.
// 256 * coarse + fine.
MR_KERNEL VI Combine(const VI& coarse, const VI& fine) {
  return {_mm256_add_epi32(_mm256_slli_epi32(coarse.a, 8), fine.a),
          _mm256_add_epi32(_mm256_slli_epi32(coarse.b, 8), fine.b)};
}

MR_KERNEL int StoreCodes(int8_t* out, VF v) {
  const __m256i low = _mm256_cvtps_epi32(v.a), high = _mm256_cvtps_epi32(v.b);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                   _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  const __m256i sum = _mm256_add_epi32(low, high);
  const __m128i q = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  const __m128i e = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(e, _mm_shuffle_epi32(e, 0xB1)));
}

MR_KERNEL void Transpose8(__m256 (&v)[8]) {
  __m256 a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}
MR_KERNEL void Transpose(VF (&v)[16]) {
  __m256 top_left[8], top_right[8], bottom_left[8], bottom_right[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    top_left[i] = v[i].a;
    top_right[i] = v[i].b;
    bottom_left[i] = v[i + 8].a;
    bottom_right[i] = v[i + 8].b;
  }
  Transpose8(top_left);
  Transpose8(top_right);
  Transpose8(bottom_left);
  Transpose8(bottom_right);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    v[i] = {top_left[i], bottom_left[i]};
    v[i + 8] = {top_right[i], bottom_right[i]};
  }
}

MR_KERNEL __m256i Broadcast4(const int8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}

// dots[p][t] = exact sum over one block of (code - zero) * x. `codes` is the block's codes in the first panel. The 16
// products of 15 * 127 that meet in one 16-bit lane stay below 2^15.
template <int P, int T, int kZeroShift>
MR_KERNEL void DotBlock4(const uint8_t* codes, size_t panel_bytes, const int8_t* x, size_t pitch,
                         const int32_t* negated_sums, size_t sums_pitch, VI (&dots)[P][T]) {
  const __m256i nibble = _mm256_set1_epi8(15);
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    __m256i a[T], b[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) a[t] = b[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256i* w = reinterpret_cast<const __m256i*>(codes + p * panel_bytes + j * 64);
      const __m256i both_a = _mm256_loadu_si256(w), both_b = _mm256_loadu_si256(w + 1);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i w_a = _mm256_and_si256(half ? _mm256_srli_epi16(both_a, 4) : both_a, nibble);
        const __m256i w_b = _mm256_and_si256(half ? _mm256_srli_epi16(both_b, 4) : both_b, nibble);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const __m256i word = Broadcast4(x + t * pitch + 4 * j + 16 * half);
          a[t] = _mm256_add_epi16(a[t], _mm256_maddubs_epi16(w_a, word));
          b[t] = _mm256_add_epi16(b[t], _mm256_maddubs_epi16(w_b, word));
        }
      }
    }
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const __m256i start = kZeroShift == 0
                                ? _mm256_setzero_si256()
                                : _mm256_slli_epi32(_mm256_set1_epi32(negated_sums[t * sums_pitch]), kZeroShift);
      dots[p][t] = {_mm256_add_epi32(start, _mm256_madd_epi16(a[t], ones)),
                    _mm256_add_epi32(start, _mm256_madd_epi16(b[t], ones))};
    }
  }
}

// |w| <= 128 and |x| <= 127, so the pairs of products never saturate.
template <int P, int T>
MR_KERNEL void DotBlock8(const uint8_t* codes, size_t panel_bytes, const int8_t* x, size_t pitch, const int32_t*,
                         size_t, VI (&dots)[P][T]) {
  const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) dots[p][t] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i* w = reinterpret_cast<const __m256i*>(codes + p * panel_bytes + j * 64);
      const __m256i w_a = _mm256_xor_si256(_mm256_loadu_si256(w), flip);
      const __m256i w_b = _mm256_xor_si256(_mm256_loadu_si256(w + 1), flip);
      const __m256i abs_a = _mm256_abs_epi8(w_a), abs_b = _mm256_abs_epi8(w_b);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m256i word = Broadcast4(x + t * pitch + 4 * j);
        const __m256i pairs_a = _mm256_maddubs_epi16(abs_a, _mm256_sign_epi8(word, w_a));
        const __m256i pairs_b = _mm256_maddubs_epi16(abs_b, _mm256_sign_epi8(word, w_b));
        dots[p][t].a = _mm256_add_epi32(dots[p][t].a, _mm256_madd_epi16(pairs_a, ones));
        dots[p][t].b = _mm256_add_epi32(dots[p][t].b, _mm256_madd_epi16(pairs_b, ones));
      }
    }
  }
}

}  // namespace millrace::engine::cpu::avx2
