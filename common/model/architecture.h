#pragma once
// What a model family computes, as data: which configuration keys it has, which tensors, and the operations of a layer
// over named activations. A backend turns the description into its own kernels; a description names no device. One
// file of arch/ is one family.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace millrace::model {

// The activations of one token, each a vector. kResidual lives through all layers, the others within one.
enum class Activation : uint8_t { kResidual, kNormed, kQuery, kKey, kValue, kAttended, kGate, kUp, kHidden };
inline constexpr int kActivations = 9;

enum class OpKind : uint8_t {
  kRmsNorm,    // out = in / rms(in) * weight
  kLinear,     // out (+)= weight in + bias
  kRope,       // rotates the heads of `out` in place
  kStoreKv,    // writes kKey and kValue to the cache; once a layer, before kAttention
  kAttention,  // out = softmax(query keys / sqrt(head_dim)) values, causal
  kSwiGlu,     // out = silu(in) * second
};

struct LayerOp {
  OpKind kind;
  Activation in = Activation::kResidual;
  Activation second = Activation::kResidual;  // kSwiGlu
  Activation out = Activation::kResidual;
  std::string_view weight = {};  // the tensor "blk.<layer>.<weight>"
  std::string_view bias = {};    // likewise; used when the file has it
  bool accumulate = false;       // kLinear: add to out
};

enum class RopePairing : uint8_t { kInterleaved, kHalves };  // elements (2i, 2i + 1), or (i, i + dims / 2)

struct Architecture {
  std::string_view name;  // general.architecture
  RopePairing rope_pairing = RopePairing::kInterleaved;
  std::span<const LayerOp> layer;
  std::string_view embedding;
  std::string_view output_norm;
  std::string_view output;        // absent from the file: the embedding is the output matrix
  std::string_view rope_factors;  // optional tensor that divides the rotary frequencies
  // Keys "<name>.<key>" of variants that this description does not compute: a value other than 0 is refused.
  std::span<const std::string_view> refused_keys;
};

// Sizes of one model.
struct ModelConfig {
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t feed_forward = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t rope_dims = 0;
  uint32_t context = 0;  // tokens the model was trained for
  float rms_epsilon = 0;
  double rope_base = 10000.0;
  double rope_scale = 1.0;  // positions are divided by it

  uint32_t Width(Activation activation) const;
};

// Key-value metadata of a model file. kNotFound when the key is absent.
class Metadata {
 public:
  virtual ~Metadata() = default;
  virtual StatusOr<uint64_t> Uint(std::string_view key) const = 0;
  virtual StatusOr<double> Float(std::string_view key) const = 0;
  virtual StatusOr<std::string> String(std::string_view key) const = 0;
};

namespace arch {
std::span<const Architecture* const> All();
}  // namespace arch

// By general.architecture; kUnimplemented names it beside those we have.
StatusOr<const Architecture*> FindArchitecture(const Metadata& metadata);
// kInvalidArgument names a missing or senseless key, kUnimplemented a variant we lack.
StatusOr<ModelConfig> ReadConfig(const Architecture& architecture, const Metadata& metadata);

// "blk.3.attn_q.weight"
std::string LayerTensorName(uint32_t layer, std::string_view name);

}  // namespace millrace::model
