// Expansion of ggml's storage formats to floats. Layouts are those of ggml-common.h; every product below is exact in a
// float, so that one rounding remains and the result does not depend on fused multiply-adds.

#include <bit>
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "common/model/gguf.h"

namespace millrace::model {
namespace {

float FromHalf(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
  const uint32_t exponent = (h >> 10) & 0x1FU;
  const uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float HalfAt(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return FromHalf(bits);
}

void F32(const uint8_t* block, float* out) { std::memcpy(out, block, sizeof(float)); }
void F16(const uint8_t* block, float* out) { *out = HalfAt(block); }
void BF16(const uint8_t* block, float* out) {
  uint16_t bits;
  std::memcpy(&bits, block, sizeof(bits));
  *out = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// half d; int8 q[32]
void Q8_0(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

// half d; 32 nibbles, low halves first
void Q4_0(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((block[2 + i] & 0xF) - 8) * d;
    out[i + 16] = static_cast<float>((block[2 + i] >> 4) - 8) * d;
  }
}

// half d, m; 32 nibbles
void Q4_1(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const float m = HalfAt(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(block[4 + i] & 0xF) * d + m;
    out[i + 16] = static_cast<float>(block[4 + i] >> 4) * d + m;
  }
}

// The i-th of 32 five-bit values: its low 4 bits in `nibbles`, its high bit in `high`.
int FiveBits(const uint8_t* nibbles, const uint8_t* high, int i) {
  const int low = i < 16 ? nibbles[i] & 0xF : nibbles[i - 16] >> 4;
  return low | (((high[i / 8] >> (i % 8)) & 1) << 4);
}

// half d; 32 high bits; 32 nibbles
void Q5_0(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(FiveBits(block + 6, block + 2, i) - 16) * d;
}

// half d, m; 32 high bits; 32 nibbles
void Q5_1(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const float m = HalfAt(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(FiveBits(block + 8, block + 4, i)) * d + m;
}

struct ScaleMin {
  float scale;
  float min;
};

// The j-th of 8 pairs of six-bit values packed in 12 bytes.
ScaleMin SixBitPair(const uint8_t* packed, int j) {
  if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  return {static_cast<float>((packed[j + 4] & 0xF) | ((packed[j - 4] >> 6) << 4)),
          static_cast<float>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4))};
}

// half d, dmin; 8 scale and minimum pairs; 256 nibbles in groups of 64, low halves first
void Q4_K(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const float dmin = HalfAt(block + 2);
  const uint8_t* q = block + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin pair = SixBitPair(block + 4, j);
    const float scale = d * pair.scale;
    const float min = dmin * pair.min;
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = q[32 * (j / 2) + i];
      out[32 * j + i] = scale * static_cast<float>(j % 2 == 0 ? byte & 0xF : byte >> 4) - min;
    }
  }
}

// as Q4_K, with 256 high bits before the nibbles: bit j of byte i belongs to value i of group j
void Q5_K(const uint8_t* block, float* out) {
  const float d = HalfAt(block);
  const float dmin = HalfAt(block + 2);
  const uint8_t* high = block + 16;
  const uint8_t* q = block + 48;
  for (int j = 0; j < 8; ++j) {
    const ScaleMin pair = SixBitPair(block + 4, j);
    const float scale = d * pair.scale;
    const float min = dmin * pair.min;
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = q[32 * (j / 2) + i];
      const int value = (j % 2 == 0 ? byte & 0xF : byte >> 4) | (((high[i] >> j) & 1) << 4);
      out[32 * j + i] = scale * static_cast<float>(value) - min;
    }
  }
}

// 256 low nibbles; 256 high pairs of bits; 16 int8 scales; half d. Two halves of 128 values, each four groups of 32.
void Q6_K(const uint8_t* block, float* out) {
  const float d = HalfAt(block + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    const uint8_t* scales = block + 192 + 8 * half;
    for (int group = 0; group < 4; ++group) {
      for (int i = 0; i < 32; ++i) {
        const uint8_t byte = low[32 * (group % 2) + i];
        const int nibble = group < 2 ? byte & 0xF : byte >> 4;
        const int value = (nibble | (((high[i] >> (2 * group)) & 3) << 4)) - 32;
        const auto scale = static_cast<float>(static_cast<int8_t>(scales[2 * group + i / 16]));
        out[128 * half + 32 * group + i] = d * scale * static_cast<float>(value);
      }
    }
  }
}

struct Format {
  TensorType type;
  TypeTraits traits;
  void (*expand_block)(const uint8_t* block, float* out);
};

constexpr Format kFormats[] = {
    {TensorType::kF32, {"F32", 1, 4}, F32},        {TensorType::kF16, {"F16", 1, 2}, F16},
    {TensorType::kBF16, {"BF16", 1, 2}, BF16},     {TensorType::kQ8_0, {"Q8_0", 32, 34}, Q8_0},
    {TensorType::kQ4_0, {"Q4_0", 32, 18}, Q4_0},   {TensorType::kQ4_1, {"Q4_1", 32, 20}, Q4_1},
    {TensorType::kQ5_0, {"Q5_0", 32, 22}, Q5_0},   {TensorType::kQ5_1, {"Q5_1", 32, 24}, Q5_1},
    {TensorType::kQ4_K, {"Q4_K", 256, 144}, Q4_K}, {TensorType::kQ5_K, {"Q5_K", 256, 176}, Q5_K},
    {TensorType::kQ6_K, {"Q6_K", 256, 210}, Q6_K},
};

const Format* FindFormat(TensorType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

// Types of ggml that we can't read, so that errors can name them.
struct ForeignType {
  uint32_t value;
  std::string_view name;
};
constexpr ForeignType kForeignTypes[] = {
    {9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
    {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
    {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
    {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"},  {40, "NVFP4"},
};

}  // namespace

StatusOr<TypeTraits> TraitsOf(TensorType type) {
  if (const Format* format = FindFormat(type)) return format->traits;
  std::string name = "number " + std::to_string(static_cast<uint32_t>(type));
  for (const ForeignType& foreign : kForeignTypes) {
    if (foreign.value == static_cast<uint32_t>(type)) name = foreign.name;
  }
  std::string known;
  for (const Format& format : kFormats) {
    known += known.empty() ? "" : ", ";
    known += format.traits.name;
  }
  return Unsupported("tensor type " + name + " can't be read; we have " + known);
}

size_t Tensor::row_bytes() const {
  const Format* format = FindFormat(type);
  MR_CHECK(format != nullptr);
  return static_cast<size_t>(cols / format->traits.block_elements * format->traits.block_bytes);
}

void DequantizeRow(TensorType type, const std::byte* row, uint64_t cols, float* out) {
  const Format* format = FindFormat(type);
  MR_CHECK(format != nullptr && cols % format->traits.block_elements == 0);
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  for (uint64_t done = 0; done < cols; done += format->traits.block_elements) {
    format->expand_block(block, out + done);
    block += format->traits.block_bytes;
  }
}

}  // namespace millrace::model
