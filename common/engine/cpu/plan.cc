#include "common/engine/cpu/plan.h"

#include <algorithm>
#include <utility>

#include "common/engine/cpu/rope_angles.h"

namespace millrace::engine::cpu {
namespace {

using model::Activation;
using model::LayerOp;
using model::OpKind;

constexpr uint32_t kRunsPerThread = 8;
constexpr uint32_t kMostPanelsPerRun = 16;

class GgufMetadata final : public model::Metadata {
 public:
  explicit GgufMetadata(const model::GgufFile& file) : file_(file) {}
  StatusOr<uint64_t> Uint(std::string_view key) const override { return file_.Uint(key); }
  StatusOr<double> Float(std::string_view key) const override { return file_.Float(key); }
  StatusOr<std::string> String(std::string_view key) const override { return file_.String(key); }

 private:
  const model::GgufFile& file_;
};

// The tensors that the architecture reads and the file has or must have.
std::vector<std::string> TensorNames(const model::Architecture& architecture, uint32_t layers,
                                     const model::GgufFile& file) {
  std::vector<std::string> names = {std::string(architecture.embedding), std::string(architecture.output_norm)};
  for (std::string_view optional : {architecture.output, architecture.rope_factors}) {
    if (!optional.empty() && file.Find(optional) != nullptr) names.emplace_back(optional);
  }
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (const LayerOp& op : architecture.layer) {
      if (!op.weight.empty()) names.push_back(model::LayerTensorName(layer, op.weight));
      if (op.bias.empty()) continue;
      std::string bias = model::LayerTensorName(layer, op.bias);
      if (file.Find(bias) != nullptr) names.push_back(std::move(bias));
    }
  }
  return names;
}

Status CheckSizes(const model::ModelConfig& config) {
  if (config.head_dim % 16 != 0 || config.head_dim > kMaxHeadDim) {
    return Unsupported("heads of " + std::to_string(config.head_dim) +
                       " elements are not supported; we have multiples of 16 up to " + std::to_string(kMaxHeadDim));
  }
  if (config.heads / config.kv_heads > kMaxAttentionRows) {
    return Unsupported(std::to_string(config.heads / config.kv_heads) +
                       " query heads on one key head are not supported; we have up to " +
                       std::to_string(kMaxAttentionRows));
  }
  return OkStatus();
}

// Cuts the panels of all linears of a stage into runs.
void CutRuns(Stage& stage, uint32_t threads) {
  uint32_t total = 0;
  for (const Linear& linear : stage.linears) total += linear.weight->shape.panels();
  uint32_t size = (total / (threads * kRunsPerThread) + 1) / 2 * 2;
  size = std::clamp<uint32_t>(size, 2, kMostPanelsPerRun);
  for (uint32_t i = 0; i < stage.linears.size(); ++i) {
    const uint32_t panels = stage.linears[i].weight->shape.panels();
    for (uint32_t first = 0; first < panels; first += size) {
      stage.runs.push_back({i, first, std::min(size, panels - first)});
    }
  }
}

class Planner {
 public:
  Planner(const CpuModel& model, uint32_t threads) : model_(model), threads_(threads) {}

  StatusOr<Plan> Make() {
    const model::Architecture& architecture = *model_.architecture;
    plan_.embedding = model_.weights.Find(architecture.embedding);
    MR_ASSIGN_OR_RETURN(plan_.output_norm, Vector(std::string(architecture.output_norm), model_.config.hidden));
    const PackedTensor* output = model_.weights.Find(architecture.output);
    Linear last{.weight = output != nullptr ? output : plan_.embedding, .in = Activation::kNormed};
    MR_RETURN_IF_ERROR(CheckMatrix(std::string(architecture.output), *last.weight, model_.vocab, model_.config.hidden));
    AddLinear(plan_.output, last);
    CutRuns(plan_.output, threads_);
    for (uint32_t layer = 0; layer < model_.config.layers; ++layer) {
      stages_ = &plan_.layers.emplace_back();
      for (const LayerOp& op : architecture.layer) MR_RETURN_IF_ERROR(AddOp(layer, op));
    }
    for (std::vector<Stage>& stages : plan_.layers) Finish(stages);
    MR_RETURN_IF_ERROR(SetRope());
    return std::move(plan_);
  }

 private:
  StatusOr<const float*> Vector(const std::string& name, uint32_t size) const {
    const PackedTensor* tensor = model_.weights.Find(name);
    if (tensor == nullptr || tensor->shape.storage != Storage::kVector || tensor->shape.cols != size) {
      return InvalidArgument("tensor " + name + " must be a vector of " + std::to_string(size) + " elements");
    }
    return reinterpret_cast<const float*>(tensor->data);
  }

  static Status CheckMatrix(const std::string& name, const PackedTensor& tensor, uint32_t rows, uint32_t cols) {
    if (tensor.shape.storage != Storage::kVector && tensor.shape.rows == rows && tensor.shape.cols == cols) {
      return OkStatus();
    }
    return InvalidArgument("tensor " + name + " is " + std::to_string(tensor.shape.rows) + " x " +
                           std::to_string(tensor.shape.cols) + ", the model's sizes ask for " + std::to_string(rows) +
                           " x " + std::to_string(cols));
  }

  void AddLinear(Stage& stage, const Linear& linear) {
    stage.kind = Stage::Kind::kLinears;
    stage.linears.push_back(linear);
    if (ReadsQuantized(*linear.weight)) plan_.quantized[static_cast<size_t>(linear.in)] = true;
  }

  Status AddOp(uint32_t layer, const LayerOp& op) {
    if (op.kind == OpKind::kLinear) return AddLayerLinear(layer, op);
    if (op.kind == OpKind::kAttention) {
      stages_->push_back({.kind = Stage::Kind::kAttention});
      return OkStatus();
    }
    if (stages_->empty() || stages_->back().kind != Stage::Kind::kTokens) stages_->emplace_back();
    Stage& stage = stages_->back();
    TokenOp token_op{.kind = op.kind, .in = op.in, .second = op.second, .out = op.out};
    if (op.kind == OpKind::kRmsNorm) {
      MR_ASSIGN_OR_RETURN(token_op.weight,
                          Vector(model::LayerTensorName(layer, op.weight), model_.config.Width(op.in)));
    }
    stage.stores_kv = stage.stores_kv || op.kind == OpKind::kStoreKv;
    stage.token_ops.push_back(token_op);
    return OkStatus();
  }

  Status AddLayerLinear(uint32_t layer, const LayerOp& op) {
    const std::string name = model::LayerTensorName(layer, op.weight);
    Linear linear{.weight = model_.weights.Find(name), .in = op.in, .out = op.out, .accumulate = op.accumulate};
    MR_RETURN_IF_ERROR(CheckMatrix(name, *linear.weight, model_.config.Width(op.out), model_.config.Width(op.in)));
    const std::string bias = model::LayerTensorName(layer, op.bias);
    if (!op.bias.empty() && model_.weights.Find(bias) != nullptr) {
      MR_ASSIGN_OR_RETURN(linear.bias, Vector(bias, model_.config.Width(op.out)));
    }
    const bool joins = !stages_->empty() && stages_->back().kind == Stage::Kind::kLinears &&
                       stages_->back().linears.front().in == op.in;
    if (!joins) stages_->emplace_back();
    AddLinear(stages_->back(), linear);
    return OkStatus();
  }

  // Cuts the work of matrices, and quantises each activation that a matrix reads as 8 bits where it was computed.
  void Finish(std::vector<Stage>& stages) const {
    std::vector<Stage> finished;
    for (Stage& stage : stages) {
      if (stage.kind == Stage::Kind::kLinears) CutRuns(stage, threads_);
      for (const TokenOp& op : stage.token_ops) {
        const bool produces = op.kind == OpKind::kRmsNorm || op.kind == OpKind::kSwiGlu;
        if (produces && plan_.quantized[static_cast<size_t>(op.out)]) stage.quantize.push_back(op.out);
      }
      const bool attention = stage.kind == Stage::Kind::kAttention;
      finished.push_back(std::move(stage));
      if (attention && plan_.quantized[static_cast<size_t>(Activation::kAttended)]) {
        finished.push_back({.quantize = {Activation::kAttended}});
      }
    }
    stages = std::move(finished);
  }

  Status SetRope() {
    std::span<const float> factors;
    const std::string name(model_.architecture->rope_factors);
    if (!name.empty() && model_.weights.Find(name) != nullptr) {
      MR_ASSIGN_OR_RETURN(const float* values, Vector(name, model_.config.rope_dims / 2));
      factors = {values, model_.config.rope_dims / 2};
    }
    plan_.rope_frequencies =
        RopeFrequencies(model_.config.rope_base, model_.config.rope_dims, model_.config.rope_scale, factors);
    return OkStatus();
  }

  const CpuModel& model_;
  const uint32_t threads_;
  Plan plan_;
  std::vector<Stage>* stages_ = nullptr;  // of the layer being added
};

}  // namespace

bool ReadsQuantized(const PackedTensor& weight) {
  return weight.shape.storage == Storage::kPanels && weight.shape.packing <= Packing::kU8Zero128;
}

StatusOr<CpuModel> CpuModel::Load(const model::GgufFile& file, const WeightOptions& options) {
  const GgufMetadata metadata(file);
  MR_ASSIGN_OR_RETURN(const model::Architecture* architecture, FindArchitecture(metadata));
  MR_ASSIGN_OR_RETURN(model::ModelConfig config, ReadConfig(*architecture, metadata));
  MR_RETURN_IF_ERROR(CheckSizes(config));
  const std::vector<std::string> names = TensorNames(*architecture, config.layers, file);
  MR_ASSIGN_OR_RETURN(Weights weights, LoadWeights(file, names, options));
  const uint32_t vocab = weights.Find(architecture->embedding)->shape.rows;
  return CpuModel{architecture, config, options.model_digest, std::move(weights), vocab};
}

StatusOr<Plan> MakePlan(const CpuModel& model, uint32_t threads) { return Planner(model, threads).Make(); }

}  // namespace millrace::engine::cpu
