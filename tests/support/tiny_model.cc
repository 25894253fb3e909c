#include "tests/support/tiny_model.h"

#include <cmath>
#include <cstring>

#include "common/base/random.h"
#include "tests/support/gguf_builder.h"

namespace millrace::support {
namespace {

using model::TensorType;

// Positive half nearest below x.
uint16_t ToHalf(float x) {
  if (x < 0x1p-14f) return static_cast<uint16_t>(x * 0x1p24f);
  const int exponent = std::ilogb(x);
  const auto mantissa = static_cast<uint16_t>(std::ldexp(x, 10 - exponent) - 1024.0f);
  return static_cast<uint16_t>(((exponent + 15) << 10) | mantissa);
}

uint16_t RandomHalf(Rng& rng, double size) { return ToHalf(static_cast<float>(size * (0.5 + rng.Uniform()))); }

void Append(std::string& out, uint16_t value) { out.append(reinterpret_cast<const char*>(&value), 2); }
void Append(std::string& out, float value) { out.append(reinterpret_cast<const char*>(&value), 4); }

void AppendCodes(std::string& out, Rng& rng, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) out.push_back(static_cast<char>(rng.Below(256)));
}

// One block whose values are about `size`.
void AppendBlock(std::string& out, TensorType type, Rng& rng, double size) {
  const double signed_value = size * 2 * (rng.Uniform() - 0.5);
  const auto value = static_cast<float>(signed_value * 1.7);
  switch (type) {
    case TensorType::kF32:
      return Append(out, value);
    case TensorType::kF16:
      return Append(out, static_cast<uint16_t>(ToHalf(std::fabs(value) + 1e-4f) | (value < 0 ? 0x8000 : 0)));
    case TensorType::kBF16: {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      return Append(out, static_cast<uint16_t>(bits >> 16));
    }
    case TensorType::kQ8_0:
      Append(out, RandomHalf(rng, size / 70));
      return AppendCodes(out, rng, 32);
    case TensorType::kQ4_0:
      Append(out, RandomHalf(rng, size / 5));
      return AppendCodes(out, rng, 16);
    case TensorType::kQ4_1:
      Append(out, RandomHalf(rng, size / 5));
      Append(out, static_cast<uint16_t>(RandomHalf(rng, size * 1.5) | 0x8000));
      return AppendCodes(out, rng, 16);
    case TensorType::kQ5_0:
      Append(out, RandomHalf(rng, size / 10));
      return AppendCodes(out, rng, 20);
    case TensorType::kQ5_1:
      Append(out, RandomHalf(rng, size / 10));
      Append(out, static_cast<uint16_t>(RandomHalf(rng, size * 1.5) | 0x8000));
      return AppendCodes(out, rng, 20);
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      Append(out, RandomHalf(rng, size / (type == TensorType::kQ4_K ? 240 : 480)));
      Append(out, RandomHalf(rng, size / 32));
      return AppendCodes(out, rng, type == TensorType::kQ4_K ? 140 : 172);
    case TensorType::kQ6_K:
      AppendCodes(out, rng, 208);
      return Append(out, RandomHalf(rng, size / 1200));
  }
}

class Builder {
 public:
  explicit Builder(const TinyModelOptions& options) : options_(options), seed_(options.seed) {}

  std::string Build() {
    AddMetadata();
    const TinyModelOptions& o = options_;
    AddMatrix("token_embd.weight", o.embedding_type, o.vocab, o.hidden);
    AddVector("output_norm.weight", o.hidden, 1.0f);
    if (!o.tied) AddMatrix("output.weight", o.type, o.vocab, o.hidden);
    for (uint32_t layer = 0; layer < o.layers; ++layer) AddLayer("blk." + std::to_string(layer) + ".");
    return file_.Bytes();
  }

 private:
  void AddMetadata() {
    const TinyModelOptions& o = options_;
    file_.String("general.architecture", "llama")
        .Uint32("llama.block_count", o.layers)
        .Uint32("llama.embedding_length", o.hidden)
        .Uint32("llama.feed_forward_length", o.feed_forward)
        .Uint32("llama.context_length", o.context)
        .Uint32("llama.attention.head_count", o.heads)
        .Uint32("llama.attention.head_count_kv", o.kv_heads)
        .Uint32("llama.attention.key_length", o.head_dim)
        .Uint32("llama.attention.value_length", o.head_dim)
        .Uint32("llama.rope.dimension_count", o.head_dim)
        .Float32("llama.rope.freq_base", 10000.0f)
        .Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  }

  void AddMatrix(const std::string& name, TensorType type, uint64_t rows, uint64_t cols) {
    file_.Tensor(name, static_cast<uint32_t>(type), {cols, rows}, RandomRows(type, rows, cols, ++seed_));
  }

  void AddVector(const std::string& name, uint64_t size, float around) {
    Rng rng(++seed_);
    std::string data;
    for (uint64_t i = 0; i < size; ++i) Append(data, around + static_cast<float>(rng.Uniform() - 0.5) * 0.4f);
    file_.Tensor(name, static_cast<uint32_t>(TensorType::kF32), {size}, data);
  }

  void AddLayer(const std::string& prefix) {
    const TinyModelOptions& o = options_;
    AddVector(prefix + "attn_norm.weight", o.hidden, 1.0f);
    AddVector(prefix + "ffn_norm.weight", o.hidden, 1.0f);
    AddMatrix(prefix + "attn_q.weight", o.type, o.heads * o.head_dim, o.hidden);
    AddMatrix(prefix + "attn_k.weight", o.type, o.kv_heads * o.head_dim, o.hidden);
    AddMatrix(prefix + "attn_v.weight", o.type, o.kv_heads * o.head_dim, o.hidden);
    AddMatrix(prefix + "attn_output.weight", o.type, o.hidden, o.heads * o.head_dim);
    AddMatrix(prefix + "ffn_gate.weight", o.type, o.feed_forward, o.hidden);
    AddMatrix(prefix + "ffn_up.weight", o.type, o.feed_forward, o.hidden);
    AddMatrix(prefix + "ffn_down.weight", o.type, o.hidden, o.feed_forward);
    if (!o.biases) return;
    AddVector(prefix + "attn_q.bias", o.heads * o.head_dim, 0.0f);
    AddVector(prefix + "attn_k.bias", o.kv_heads * o.head_dim, 0.0f);
    AddVector(prefix + "attn_v.bias", o.kv_heads * o.head_dim, 0.0f);
  }

  const TinyModelOptions options_;
  uint64_t seed_;
  test::GgufBuilder file_;
};

}  // namespace

std::string RandomRows(TensorType type, uint64_t rows, uint64_t cols, uint64_t seed) {
  Rng rng(seed);
  const double size = 1.0 / std::sqrt(static_cast<double>(cols));
  const uint64_t blocks = rows * cols / model::TraitsOf(type)->block_elements;
  std::string out;
  for (uint64_t i = 0; i < blocks; ++i) AppendBlock(out, type, rng, size);
  return out;
}

std::string TinyModelBytes(const TinyModelOptions& options) { return Builder(options).Build(); }

}  // namespace millrace::support
