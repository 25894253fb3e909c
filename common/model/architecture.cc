#include "common/model/architecture.h"

namespace millrace::model {
namespace {

constexpr uint64_t kMostElements = uint64_t{1} << 24;

// A size of "<architecture>.<key>"; `otherwise` when absent, an error when that is 0.
StatusOr<uint32_t> ReadSize(const Architecture& architecture, const Metadata& metadata, std::string_view key,
                            uint64_t otherwise) {
  const std::string name = std::string(architecture.name) + "." + std::string(key);
  StatusOr<uint64_t> found = metadata.Uint(name);
  if (!found.ok() && (found.status().code() != Code::kNotFound || otherwise == 0)) {
    return InvalidArgument("model metadata: " + found.status().message());
  }
  const uint64_t value = found.ok() ? *found : otherwise;
  if (value == 0 || value > kMostElements) {
    return InvalidArgument("model metadata: " + name + " is " + std::to_string(value) + ", expected 1 to " +
                           std::to_string(kMostElements));
  }
  return static_cast<uint32_t>(value);
}

StatusOr<double> ReadNumber(const Architecture& architecture, const Metadata& metadata, std::string_view key,
                            double otherwise) {
  StatusOr<double> found = metadata.Float(std::string(architecture.name) + "." + std::string(key));
  if (found.ok()) return found;
  if (found.status().code() == Code::kNotFound && otherwise != 0) return otherwise;
  return InvalidArgument("model metadata: " + found.status().message());
}

Status CheckVariant(const Architecture& architecture, const Metadata& metadata) {
  const std::string prefix = std::string(architecture.name) + ".";
  for (std::string_view key : architecture.refused_keys) {
    StatusOr<uint64_t> found = metadata.Uint(prefix + std::string(key));
    if (found.ok() && *found != 0) {
      return Unsupported("model variant: " + prefix + std::string(key) + " = " + std::to_string(*found) +
                         " is not supported");
    }
  }
  return OkStatus();
}

Status ReadRope(const Architecture& architecture, const Metadata& metadata, ModelConfig& config) {
  MR_ASSIGN_OR_RETURN(config.rope_base, ReadNumber(architecture, metadata, "rope.freq_base", 10000.0));
  if (!(config.rope_base > 1.0)) return InvalidArgument("model metadata: rope.freq_base must be above 1");
  const std::string prefix = std::string(architecture.name) + ".rope.scaling.";
  StatusOr<std::string> type = metadata.String(prefix + "type");
  if (!type.ok() || *type == "none") return OkStatus();
  if (*type != "linear") {
    return Unsupported("rotary scaling '" + *type + "' of " + prefix + "type is not supported; we have: none, linear");
  }
  MR_ASSIGN_OR_RETURN(config.rope_scale, ReadNumber(architecture, metadata, "rope.scaling.factor", 1.0));
  if (!(config.rope_scale >= 1.0)) return InvalidArgument("model metadata: " + prefix + "factor must be at least 1");
  return OkStatus();
}

}  // namespace

uint32_t ModelConfig::Width(Activation activation) const {
  switch (activation) {
    case Activation::kResidual:
    case Activation::kNormed:
      return hidden;
    case Activation::kQuery:
    case Activation::kAttended:
      return heads * head_dim;
    case Activation::kKey:
    case Activation::kValue:
      return kv_heads * head_dim;
    case Activation::kGate:
    case Activation::kUp:
    case Activation::kHidden:
      return feed_forward;
  }
  return 0;
}

StatusOr<const Architecture*> FindArchitecture(const Metadata& metadata) {
  MR_ASSIGN_OR_RETURN(const std::string name, metadata.String("general.architecture"));
  std::string have;
  for (const Architecture* architecture : arch::All()) {
    if (architecture->name == name) return architecture;
    have += (have.empty() ? "" : ", ") + std::string(architecture->name);
  }
  return Unsupported("model architecture '" + name + "' is not supported; we have: " + have);
}

StatusOr<ModelConfig> ReadConfig(const Architecture& architecture, const Metadata& metadata) {
  MR_RETURN_IF_ERROR(CheckVariant(architecture, metadata));
  ModelConfig config;
  const auto size = [&](std::string_view key, uint64_t otherwise) {
    return ReadSize(architecture, metadata, key, otherwise);
  };
  MR_ASSIGN_OR_RETURN(config.layers, size("block_count", 0));
  MR_ASSIGN_OR_RETURN(config.hidden, size("embedding_length", 0));
  MR_ASSIGN_OR_RETURN(config.feed_forward, size("feed_forward_length", 0));
  MR_ASSIGN_OR_RETURN(config.context, size("context_length", 0));
  MR_ASSIGN_OR_RETURN(config.heads, size("attention.head_count", 0));
  MR_ASSIGN_OR_RETURN(config.kv_heads, size("attention.head_count_kv", config.heads));
  MR_ASSIGN_OR_RETURN(config.head_dim, size("attention.key_length", config.hidden / config.heads));
  MR_ASSIGN_OR_RETURN(const uint32_t value_dim, size("attention.value_length", config.head_dim));
  MR_ASSIGN_OR_RETURN(config.rope_dims, size("rope.dimension_count", config.head_dim));
  if (value_dim != config.head_dim) return Unsupported("keys and values of different lengths are not supported");
  if (config.heads % config.kv_heads != 0) {
    return InvalidArgument("model metadata: attention.head_count is no multiple of attention.head_count_kv");
  }
  if (config.rope_dims > config.head_dim || config.rope_dims % 2 != 0) {
    return InvalidArgument("model metadata: rope.dimension_count must be even and at most the head's length");
  }
  MR_ASSIGN_OR_RETURN(const double epsilon, ReadNumber(architecture, metadata, "attention.layer_norm_rms_epsilon", 0));
  config.rms_epsilon = static_cast<float>(epsilon);
  MR_RETURN_IF_ERROR(ReadRope(architecture, metadata, config));
  return config;
}

std::string LayerTensorName(uint32_t layer, std::string_view name) {
  return "blk." + std::to_string(layer) + "." + std::string(name);
}

}  // namespace millrace::model
