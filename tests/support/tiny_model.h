#pragma once
// A random llama model small enough for tests, as a GGUF file of any tensor type that we read.

#include <cstdint>
#include <string>

#include "common/model/gguf.h"

namespace millrace::support {

struct TinyModelOptions {
  model::TensorType type = model::TensorType::kQ4_1;  // of the layers' matrices
  model::TensorType embedding_type = model::TensorType::kQ8_0;
  uint32_t layers = 2;
  uint32_t hidden = 256;
  uint32_t feed_forward = 512;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 64;
  uint32_t vocab = 301;
  uint32_t context = 512;
  bool tied = true;
  bool biases = false;  // on query, key and value
  uint64_t seed = 1;
};

// Row-major rows of `type` with random codes, of values about 1 / sqrt(cols).
std::string RandomRows(model::TensorType type, uint64_t rows, uint64_t cols, uint64_t seed);

// The bytes of the file.
std::string TinyModelBytes(const TinyModelOptions& options);

}  // namespace millrace::support
