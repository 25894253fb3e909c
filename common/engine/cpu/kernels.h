#pragma once
// The arithmetic of the CPU backend: one table of functions per instruction set, over plain pointers. Both tables give
// the same bits: every function fixes the order of its operations per output element, with 16 virtual lanes, whatever
// the shape of the call. Functions neither allocate nor block; callers on several threads must not share outputs.

#include <cstddef>
#include <cstdint>

namespace millrace::engine::cpu {

// How a weight matrix is stored: panels of 16 rows, codes first, then scales.
//   integer kinds, a panel: [block of 32][...codes of 16 rows...] then [block][16 x f16 scale] then, kU4Min only,
//     [block][16 x f16 minimum]. 8-bit codes are the signed value + 128: [k / 4][row][k % 4]. 4-bit codes: byte
//     [k / 4][row][k % 4] for k < 16 holds k in its low and k + 16 in its high half.
//   float kinds, a panel: [k][16].
enum class Packing : uint8_t { kU4Zero8, kU4Min, kU8Zero128, kF16, kBF16, kF32 };
inline constexpr int kPackings = 6;
inline constexpr uint32_t kPanelRows = 16;
inline constexpr uint32_t kQuantBlock = 32;

// One matrix of activations as integers, a scale a block of 32 elements: value = scale * (256 * coarse + fine), both
// codes of 8 bits. One plane of codes alone would cost more accuracy than the 4-bit weights leave: its error moves near
// ties of logits.
struct QuantizedRows {
  int8_t* codes = nullptr;               // [row][coarse, fine][pitch]
  float* scales = nullptr;               // [row][pitch / 32], likewise sums
  float* sums = nullptr;                 // scale * sum of the combined codes
  int32_t* negated_code_sums = nullptr;  // [row][coarse, fine][pitch / 32]
  size_t pitch = 0;                      // elements a row, a multiple of 32
};

// out[t][row] = sum over k of weights[row][k] * input[t][k] (+ bias[row]) (+ out[t][row] when accumulate).
struct MatMulArgs {
  const std::byte* panels = nullptr;  // of the first row wanted
  size_t panel_bytes = 0;
  uint32_t panel_count = 0;
  uint32_t cols = 0;
  uint32_t tokens = 0;
  QuantizedRows quantized;       // integer kinds
  const float* input = nullptr;  // float kinds
  size_t input_pitch = 0;
  float* out = nullptr;  // 16 * panel_count elements a token
  size_t out_pitch = 0;
  const float* bias = nullptr;
  bool accumulate = false;
};

// Causal attention of `tokens` consecutive queries of one sequence over one key/value head. Row t sees positions
// [0, position + t]. KV is read block by block; within a block in tiles of all its keys.
struct AttentionArgs {
  const std::byte* kv = nullptr;  // start of this layer in block 0
  size_t block_bytes = 0;
  const uint32_t* blocks = nullptr;
  size_t row_bytes = 0;
  size_t key_offset = 0;  // of this head in a row, bytes
  size_t value_offset = 0;
  bool half = true;          // f16 elements, else f32
  uint32_t head_dim = 0;     // a multiple of 16, at most kMaxHeadDim
  uint32_t query_heads = 0;  // that share the key/value head
  uint32_t tokens = 0;       // tokens * query_heads <= kMaxAttentionRows
  uint32_t position = 0;
  float scale = 1.0f;
  const float* query = nullptr;  // [token][query_pitch], the heads side by side
  size_t query_pitch = 0;
  float* out = nullptr;
  size_t out_pitch = 0;
  float* scratch = nullptr;  // AttentionScratchFloats(head_dim) floats, 64-byte aligned
};
inline constexpr uint32_t kMaxHeadDim = 256;
inline constexpr uint32_t kMaxAttentionRows = 64;
constexpr size_t AttentionScratchFloats(uint32_t head_dim) {
  return size_t{2} * 64 * head_dim + size_t{3} * kMaxAttentionRows * head_dim + size_t{64} * kMaxAttentionRows +
         size_t{6} * kMaxAttentionRows;
}

struct RopeArgs {
  float* rows = nullptr;  // [head][head_dim]
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t rotated = 0;        // leading elements of a head that rotate, even
  bool interleaved = true;     // pairs (2i, 2i + 1), else (i, i + rotated / 2)
  const float* cos = nullptr;  // [rotated / 2]
  const float* sin = nullptr;
};

struct Kernels {
  const char* isa;
  void (*matmul[kPackings])(const MatMulArgs& args);
  // Row `row` of `out` from `cols` floats; cols is a multiple of 32.
  void (*quantize)(const float* input, uint32_t cols, uint32_t row, const QuantizedRows& out);
  // out = input / sqrt(mean(input^2) + epsilon) * weight. Buffers are padded to 16 elements, the padding of `input` 0.
  void (*rms_norm)(const float* input, const float* weight, float epsilon, uint32_t cols, float* out);
  // out = gate / (1 + exp(-gate)) * up, over cols rounded up to 16.
  void (*swiglu)(const float* gate, const float* up, uint32_t cols, float* out);
  void (*rope)(const RopeArgs& args);
  void (*to_half)(const float* input, uint32_t count, std::byte* out);  // count is a multiple of 16
  void (*attention)(const AttentionArgs& args);
};

const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();

}  // namespace millrace::engine::cpu
