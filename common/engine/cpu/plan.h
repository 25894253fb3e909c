#pragma once
// One model, checked and turned into the stages that the CPU backend runs: what may run at the same time is one stage,
// all threads meet after each.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/engine/cpu/weights.h"
#include "common/model/architecture.h"
#include "common/model/gguf.h"

namespace millrace::engine::cpu {

struct Linear {
  const PackedTensor* weight = nullptr;
  const float* bias = nullptr;  // may be null
  model::Activation in{};
  model::Activation out{};
  bool accumulate = false;
};

// A run of panels of one matrix: the unit of work that threads take.
struct PanelRun {
  uint32_t linear = 0;  // index in the stage
  uint32_t first = 0;
  uint32_t count = 0;
};

struct TokenOp {
  model::OpKind kind{};
  model::Activation in{};
  model::Activation second{};
  model::Activation out{};
  const float* weight = nullptr;
};

struct Stage {
  enum class Kind : uint8_t {
    kTokens,     // token_ops in order, each token by itself; then `quantize` activations to 8 bits
    kLinears,    // all of `linears`, which read one activation
    kAttention,  // kQuery over the cache to kAttended
  };
  Kind kind = Kind::kTokens;
  std::vector<TokenOp> token_ops;
  std::vector<model::Activation> quantize;
  bool stores_kv = false;
  std::vector<Linear> linears;
  std::vector<PanelRun> runs;
};

struct Plan {
  std::vector<std::vector<Stage>> layers;
  const PackedTensor* embedding = nullptr;
  const float* output_norm = nullptr;
  Stage output;                                       // kNormed to logits: one linear, `out` unused
  std::array<bool, model::kActivations> quantized{};  // activations that some matrix reads as 8 bits
  std::vector<double> rope_frequencies;
};

// A model file as loaded: immutable after Load.
struct CpuModel {
  const model::Architecture* architecture = nullptr;
  model::ModelConfig config;
  std::string digest;
  Weights weights;
  uint32_t vocab = 0;

  // `options.model_digest` names the file. kUnimplemented, kInvalidArgument: not a model that we run, and why.
  static StatusOr<CpuModel> Load(const model::GgufFile& file, const WeightOptions& options);
};

// Whether the kernels read this matrix's input as 8 bits.
bool ReadsQuantized(const PackedTensor& weight);

// Fails when a tensor's shape does not fit. `threads` sets how finely the work is cut. Points into `model`.
StatusOr<Plan> MakePlan(const CpuModel& model, uint32_t threads);

}  // namespace millrace::engine::cpu
