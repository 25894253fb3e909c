// Each kernel of each instruction set against a plain computation in double; and the same bits from both sets, for any
// shape of the call.
#include "common/engine/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/random.h"
#include "common/engine/cpu/isa.h"
#include "common/engine/cpu/packing.h"
#include "tests/support/tiny_model.h"

namespace millrace::engine::cpu {
namespace {

using model::TensorType;

std::vector<const Kernels*> AllKernels() {
  std::vector<const Kernels*> all;
  if (MachineHas(Isa::kAvx2)) all.push_back(&Avx2Kernels());
  if (MachineHas(Isa::kAvx512)) all.push_back(&Avx512Kernels());
  return all;
}

std::vector<float> RandomFloats(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.Uniform() * 4 - 2);
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A matrix in its packed form and as doubles.
struct Matrix {
  TensorShape shape;
  std::vector<std::byte> packed;
  std::vector<float> values;
};

Matrix MakeMatrix(TensorType type, uint32_t rows, uint32_t cols, uint64_t seed) {
  Matrix matrix;
  const model::Tensor tensor{.name = "m", .type = type, .cols = cols, .rows = rows};
  matrix.shape = *ShapeFor(tensor);
  const std::string bytes = support::RandomRows(type, rows, cols, seed);
  matrix.packed.resize(matrix.shape.bytes());
  PackRows(matrix.shape, std::as_bytes(std::span(bytes)), 0, rows, matrix.packed.data());
  matrix.values.resize(size_t{rows} * cols);
  for (uint32_t row = 0; row < rows; ++row) {
    model::DequantizeRow(type, reinterpret_cast<const std::byte*>(bytes.data()) + row * tensor.row_bytes(), cols,
                         matrix.values.data() + size_t{row} * cols);
  }
  return matrix;
}

struct QuantizedStorage {
  QuantizedStorage(uint32_t rows, uint32_t cols)
      : codes(size_t{2} * rows * cols), scales(codes.size() / 64), sums(scales.size()), negated(2 * scales.size()) {
    view = {codes.data(), scales.data(), sums.data(), negated.data(), cols};
  }
  std::vector<int8_t> codes;
  std::vector<float> scales, sums;
  std::vector<int32_t> negated;
  QuantizedRows view;
};

// The product through `kernels`, cut into calls of the given numbers of tokens.
std::vector<float> Multiply(const Kernels& kernels, const Matrix& matrix, const std::vector<float>& input,
                            const std::vector<uint32_t>& cuts, const std::vector<float>& bias) {
  const uint32_t cols = matrix.shape.cols, pitch = matrix.shape.panels() * kPanelRows;
  const auto tokens = static_cast<uint32_t>(input.size() / cols);
  QuantizedStorage quantized(tokens, cols);
  if (matrix.shape.packing <= Packing::kU8Zero128) {
    for (uint32_t t = 0; t < tokens; ++t) kernels.quantize(input.data() + size_t{t} * cols, cols, t, quantized.view);
  }
  std::vector<float> out(size_t{tokens} * pitch, 0.25f);
  uint32_t first = 0;
  for (uint32_t count : cuts) {
    QuantizedRows part = quantized.view;
    const size_t block = size_t{first} * cols / kQuantBlock;
    part.codes += size_t{2} * first * cols;
    part.scales += block;
    part.sums += block;
    part.negated_code_sums += 2 * block;
    kernels.matmul[static_cast<int>(matrix.shape.packing)]({
        .panels = matrix.packed.data(),
        .panel_bytes = matrix.shape.part_bytes,
        .panel_count = matrix.shape.panels(),
        .cols = cols,
        .tokens = count,
        .quantized = part,
        .input = input.data() + size_t{first} * cols,
        .input_pitch = cols,
        .out = out.data() + size_t{first} * pitch,
        .out_pitch = pitch,
        .bias = bias.empty() ? nullptr : bias.data(),
        .accumulate = !bias.empty(),
    });
    first += count;
  }
  return out;
}

class MatMulTest : public testing::TestWithParam<TensorType> {};

TEST_P(MatMulTest, MeetsDoubleReferenceAndIsTheSameForEveryIsaAndCut) {
  for (uint32_t rows : {16u, 48u, 71u}) {
    const uint32_t cols = 96, tokens = 13;
    const Matrix matrix = MakeMatrix(GetParam(), rows, cols, rows);
    const std::vector<float> input = RandomFloats(size_t{tokens} * cols, 7);
    const std::vector<float> bias = RandomFloats(matrix.shape.panels() * kPanelRows, 8);
    const std::vector<float> first = Multiply(*AllKernels().front(), matrix, input, {tokens}, bias);
    for (uint32_t t = 0; t < tokens; ++t) {
      for (uint32_t row = 0; row < rows; ++row) {
        double want = 0.25 + static_cast<double>(bias[row]), size = 1;
        for (uint32_t k = 0; k < cols; ++k) {
          const double product = static_cast<double>(matrix.values[size_t{row} * cols + k]) *
                                 static_cast<double>(input[size_t{t} * cols + k]);
          want += product;
          size += std::fabs(product);
        }
        const double tolerance = matrix.shape.packing <= Packing::kU8Zero128 ? 5e-5 : 1e-6;
        ASSERT_NEAR(first[size_t{t} * matrix.shape.panels() * kPanelRows + row], want, tolerance * size)
            << "row " << row << " token " << t;
      }
    }
    for (const Kernels* kernels : AllKernels()) {
      for (const auto& cuts : {std::vector<uint32_t>{13},
                               {1, 12},
                               {2, 11},
                               {3, 10},
                               {4, 9},
                               {5, 8},
                               {6, 7},
                               {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}) {
        EXPECT_TRUE(SameBits(first, Multiply(*kernels, matrix, input, cuts, bias))) << kernels->isa;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllPanelTypes, MatMulTest,
                         testing::Values(TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0, TensorType::kF16,
                                         TensorType::kBF16, TensorType::kF32));

// Codes of -128 and activations of full range meet in the AVX2 byte products.
TEST(MatMul, ExtremeCodesDoNotSaturate) {
  const uint32_t cols = 64;
  std::string bytes;
  for (uint32_t block = 0; block < 16 * cols / 32; ++block) {
    bytes += std::string("\x00\x3C", 2);  // 1.0
    bytes += std::string(32, '\x80');
  }
  Matrix matrix;
  matrix.shape = *ShapeFor({.name = "m", .type = TensorType::kQ8_0, .cols = cols, .rows = 16});
  matrix.packed.resize(matrix.shape.bytes());
  PackRows(matrix.shape, std::as_bytes(std::span(bytes)), 0, 16, matrix.packed.data());
  for (float sign : {1.0f, -1.0f}) {
    const std::vector<float> input(cols, 127.0f * sign);
    for (const Kernels* kernels : AllKernels()) {
      EXPECT_EQ(Multiply(*kernels, matrix, input, {1}, {}).front(), -128.0f * 127.0f * sign * cols) << kernels->isa;
    }
  }
}

TEST(Quantize, SixteenBitsNearTheValueAndExactSums) {
  const uint32_t cols = 128;
  std::vector<float> input = RandomFloats(cols, 3);
  for (uint32_t i = 32; i < 64; ++i) input[i] = 0;
  for (const Kernels* kernels : AllKernels()) {
    QuantizedStorage out(1, cols);
    kernels->quantize(input.data(), cols, 0, out.view);
    for (uint32_t block = 0; block < cols / 32; ++block) {
      int coarse = 0, fine = 0;
      for (uint32_t i = block * 32; i < block * 32 + 32; ++i) {
        coarse += out.codes[i];
        fine += out.codes[cols + i];
        EXPECT_NEAR((256 * out.codes[i] + out.codes[cols + i]) * out.scales[block], input[i],
                    out.scales[block] * 1.01f);
      }
      EXPECT_EQ(out.negated[block], -coarse);
      EXPECT_EQ(out.negated[cols / 32 + block], -fine);
      EXPECT_EQ(out.sums[block], out.scales[block] * static_cast<float>(256 * coarse + fine));
    }
  }
}

TEST(RowKernels, MeetDoubleReferenceAndAreTheSameForEveryIsa) {
  const uint32_t cols = 208;
  const std::vector<float> x = RandomFloats(cols, 1), y = RandomFloats(cols, 2);
  std::vector<std::vector<float>> norms, gates;
  for (const Kernels* kernels : AllKernels()) {
    std::vector<float> norm(cols), gate(cols);
    kernels->rms_norm(x.data(), y.data(), 1e-5f, cols, norm.data());
    kernels->swiglu(x.data(), y.data(), cols, gate.data());
    double squares = 0;
    for (float value : x) squares += double{value} * double{value};
    const double scale = 1 / std::sqrt(squares / cols + 1e-5);
    for (uint32_t i = 0; i < cols; ++i) {
      EXPECT_NEAR(norm[i], x[i] * scale * y[i], 2e-6);
      EXPECT_NEAR(gate[i], x[i] / (1 + std::exp(-double{x[i]})) * y[i], 2e-6);
    }
    norms.push_back(norm);
    gates.push_back(gate);
  }
  EXPECT_TRUE(SameBits(norms.front(), norms.back()));
  EXPECT_TRUE(SameBits(gates.front(), gates.back()));
}

TEST(RowKernels, SwiGluIsFiniteForLargeGates) {
  for (const Kernels* kernels : AllKernels()) {
    std::vector<float> gate(16), up(16, 1.0f), out(16);
    for (int i = 0; i < 16; ++i) gate[i] = static_cast<float>(i - 8) * 1e4f;
    kernels->swiglu(gate.data(), up.data(), 16, out.data());
    for (int i = 0; i < 16; ++i) EXPECT_NEAR(out[i], i < 8 ? 0.0f : gate[i], 1e-30) << kernels->isa << " " << gate[i];
  }
}

TEST(Rope, RotatesPairsOfBothKinds) {
  const std::vector<float> cos = {0.5f, 0.25f}, sin = {0.125f, 1.0f};
  for (const Kernels* kernels : AllKernels()) {
    std::vector<float> neighbours = {1, 2, 3, 4, 9}, halves = neighbours;
    kernels->rope({neighbours.data(), 1, 5, 4, true, cos.data(), sin.data()});
    kernels->rope({halves.data(), 1, 5, 4, false, cos.data(), sin.data()});
    EXPECT_EQ(neighbours, (std::vector<float>{0.25f, 1.125f, -3.25f, 4.0f, 9}));
    EXPECT_EQ(halves, (std::vector<float>{0.125f, -3.5f, 1.625f, 3.0f, 9}));
  }
}

// KV memory of one layer with random rows, and queries at the end of it.
struct AttentionCase {
  uint32_t position, tokens, query_heads, kv_heads, head_dim;
  bool half;
};

class AttentionTest : public testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override {
    const AttentionCase& c = GetParam();
    const uint32_t end = c.position + c.tokens, blocks = (end + 63) / 64;
    width_ = c.kv_heads * c.head_dim;
    row_bytes_ = size_t{2} * width_ * (c.half ? 2 : 4);
    // Rows past the end hold NaN: they must not be read into any result.
    kv_.assign(blocks * 64 * row_bytes_ + 64, std::byte{0xFF});
    for (uint32_t i = 0; i < blocks; ++i) indices_.push_back(blocks - 1 - i);
    rows_ = RandomFloats(size_t{end} * 2 * width_, 5);
    for (uint32_t t = 0; t < end; ++t) {
      std::byte* row = kv_.data() + (indices_[t / 64] * 64 + t % 64) * row_bytes_;
      float* values = rows_.data() + size_t{t} * 2 * width_;
      if (!c.half) {
        std::memcpy(row, values, row_bytes_);
        continue;
      }
      Avx2Kernels().to_half(values, 2 * width_, row);
      model::DequantizeRow(TensorType::kF16, row, 2 * width_, values);
    }
    queries_ = RandomFloats(size_t{c.tokens} * c.query_heads * c.kv_heads * c.head_dim, 6);
  }

  // All heads, the tokens `step` at a time.
  std::vector<float> Run(const Kernels& kernels, uint32_t step) {
    const AttentionCase& c = GetParam();
    const size_t pitch = size_t{c.query_heads} * c.kv_heads * c.head_dim;
    std::vector<float> out(queries_.size()), scratch(AttentionScratchFloats(c.head_dim));
    for (uint32_t head = 0; head < c.kv_heads; ++head) {
      for (uint32_t first = 0; first < c.tokens; first += step) {
        const size_t start = first * pitch + size_t{head} * c.query_heads * c.head_dim;
        const size_t head_bytes = c.head_dim * (c.half ? 2 : 4);
        kernels.attention({kv_.data(), 64 * row_bytes_, indices_.data(), row_bytes_, head * head_bytes,
                           row_bytes_ / 2 + head * head_bytes, c.half, c.head_dim, c.query_heads,
                           std::min(step, c.tokens - first), c.position + first, 0.125f, queries_.data() + start, pitch,
                           out.data() + start, pitch, scratch.data()});
      }
    }
    return out;
  }

  double Reference(uint32_t token, uint32_t head, uint32_t d) const {
    const AttentionCase& c = GetParam();
    const float* query = queries_.data() + (size_t{token} * c.query_heads * c.kv_heads + head) * c.head_dim;
    const size_t column = size_t{head / c.query_heads} * c.head_dim;
    double sum = 0, total = 0;
    for (uint32_t t = 0; t <= c.position + token; ++t) {
      const float* row = rows_.data() + size_t{t} * 2 * width_;
      double score = 0;
      for (uint32_t i = 0; i < c.head_dim; ++i) score += double{query[i]} * double{row[column + i]};
      const double weight = std::exp(score * 0.125);
      sum += weight;
      total += weight * double{row[width_ + column + d]};
    }
    return total / sum;
  }

  uint32_t width_ = 0;
  size_t row_bytes_ = 0;
  std::vector<std::byte> kv_;
  std::vector<uint32_t> indices_;
  std::vector<float> rows_, queries_;
};

TEST_P(AttentionTest, MeetsDoubleReferenceAndIsTheSameForEveryIsaAndTile) {
  const AttentionCase& c = GetParam();
  const std::vector<float> first = Run(*AllKernels().front(), 1);
  for (const Kernels* kernels : AllKernels()) {
    for (uint32_t step : {1u, 3u, 16u}) {
      if (step * c.query_heads > kMaxAttentionRows) continue;
      EXPECT_TRUE(SameBits(first, Run(*kernels, step))) << kernels->isa << " tiles of " << step;
    }
  }
  for (uint32_t token = 0; token < c.tokens; ++token) {
    for (uint32_t head = 0; head < c.query_heads * c.kv_heads; head += 2) {
      for (uint32_t d = 0; d < c.head_dim; d += 7) {
        const size_t at = (size_t{token} * c.query_heads * c.kv_heads + head) * c.head_dim + d;
        ASSERT_NEAR(first[at], Reference(token, head, d), 1e-5) << token << " " << head << " " << d;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         testing::Values(AttentionCase{0, 1, 3, 1, 64, true}, AttentionCase{0, 20, 3, 2, 64, true},
                                         AttentionCase{63, 2, 3, 1, 64, true}, AttentionCase{64, 70, 2, 2, 64, true},
                                         AttentionCase{190, 17, 4, 1, 80, true}, AttentionCase{130, 5, 1, 3, 128, true},
                                         AttentionCase{100, 40, 3, 1, 64, false},
                                         AttentionCase{10, 3, 64, 1, 16, false},
                                         AttentionCase{500, 1, 7, 1, 256, true}));

}  // namespace
}  // namespace millrace::engine::cpu
