#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "common/model/gguf.h"

namespace millrace::model {
namespace {

std::string SourceDir() {
  const char* dir = std::getenv("MILLRACE_SOURCE_DIR");
  return dir != nullptr ? dir : ".";
}

// Written by llama.cpp's quantiser: tests/golden/tools/make_tensor_types.py.
TEST(DequantizeRow, EqualsLlamaCppForEveryType) {
  const auto opened = GgufFile::Open(SourceDir() + "/tests/golden/data/tensor_types.gguf");
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const GgufFile& file = **opened;
  int types = 0;
  for (const std::string name :
       {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}) {
    const Tensor* tensor = file.Find(name);
    const Tensor* expected = file.Find(name + ".expected");
    ASSERT_TRUE(tensor != nullptr && expected != nullptr) << name;
    ASSERT_EQ(TraitsOf(tensor->type)->name, name);
    ASSERT_EQ(tensor->cols, expected->cols);
    ASSERT_EQ(tensor->rows, expected->rows);
    std::vector<std::byte> raw(tensor->bytes());
    std::vector<float> want(expected->cols * expected->rows);
    std::vector<float> got(want.size());
    ASSERT_TRUE(file.ReadRows(*tensor, 0, tensor->rows, raw).ok());
    ASSERT_TRUE(file.ReadRows(*expected, 0, expected->rows, std::as_writable_bytes(std::span(want))).ok());
    for (uint64_t r = 0; r < tensor->rows; ++r) {
      DequantizeRow(tensor->type, raw.data() + r * tensor->row_bytes(), tensor->cols, got.data() + r * tensor->cols);
    }
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << name << " element " << i;
    ++types;
  }
  EXPECT_EQ(types, 11);
}

TEST(DequantizeRow, HalfPrecisionExtremes) {
  const uint16_t halves[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFC00, 0x3C00};
  const float want[] = {0.0F, -0.0F, 0x1p-24F, -1023 * 0x1p-24F, 0x1p-14F, 65504.0F, -INFINITY, 1.0F};
  float got[8];
  DequantizeRow(TensorType::kF16, reinterpret_cast<const std::byte*>(halves), 8, got);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(got[i], want[i]);
    EXPECT_EQ(std::signbit(got[i]), std::signbit(want[i])) << i;
  }
}

}  // namespace
}  // namespace millrace::model
