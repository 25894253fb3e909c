#include "common/engine/cpu/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/engine/cpu/rope_angles.h"

namespace millrace::engine::cpu {
namespace {

using model::Activation;
using model::OpKind;

constexpr uint32_t kQueryTileTokens = 16;

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

Forward::Forward(const ForwardParts& parts) : parts_(parts), config_(parts.model->config) {
  for (int i = 0; i < model::kActivations; ++i) {
    rows_[i].pitch = RoundUp(config_.Width(static_cast<Activation>(i)), 16);
    rows_[i].quantized = parts_.plan->quantized[i];
  }
  logit_rows_.pitch = RoundUp(parts_.model->vocab, 16);
  scratch_.resize(parts_.team->size());
}

Status Forward::ReserveRows(Rows& rows, uint32_t capacity) const {
  const uint64_t value_bytes = RoundUp(capacity * rows.pitch * sizeof(float), 64);
  const uint64_t code_pitch = rows.pitch / kQuantBlock * kQuantBlock;
  const uint64_t code_bytes = rows.quantized ? RoundUp(2 * capacity * code_pitch, 64) : 0;
  const uint64_t block_bytes = code_bytes == 0 ? 0 : RoundUp(capacity * (code_pitch / kQuantBlock) * 4, 64);
  MR_ASSIGN_OR_RETURN(Memory memory, Memory::Allocate(value_bytes + code_bytes + 4 * block_bytes));
  rows.memory = std::move(memory);
  std::byte* p = rows.memory.data();
  rows.values = reinterpret_cast<float*>(p);
  p += value_bytes;
  rows.codes.pitch = code_pitch;
  rows.codes.codes = reinterpret_cast<int8_t*>(p);
  p += code_bytes;
  rows.codes.scales = reinterpret_cast<float*>(p);
  rows.codes.sums = reinterpret_cast<float*>(p + block_bytes);
  rows.codes.negated_code_sums = reinterpret_cast<int32_t*>(p + 2 * block_bytes);
  return OkStatus();
}

Status Forward::Reserve() {
  const auto tokens = static_cast<uint32_t>(tokens_.size()), outputs = static_cast<uint32_t>(output_tokens_.size());
  if (tokens > capacity_) {
    capacity_ = 0;
    for (Rows& rows : rows_) MR_RETURN_IF_ERROR(ReserveRows(rows, tokens));
    capacity_ = tokens;
  }
  if (outputs > logit_capacity_) {
    logit_capacity_ = 0;
    MR_RETURN_IF_ERROR(ReserveRows(logit_rows_, outputs));
    logit_capacity_ = outputs;
  }
  uint64_t widest = config_.head_dim;
  for (const Rows& rows : rows_) widest = std::max<uint64_t>(widest, rows.pitch);
  // Attention's scratch, or a panel of floats and a row (ExpandRawPanel).
  const uint64_t floats =
      std::max<uint64_t>(AttentionScratchFloats(config_.head_dim), widest * kPanelRows + RoundUp(widest, 16));
  for (Memory& scratch : scratch_) {
    if (scratch.data() != nullptr) continue;
    MR_ASSIGN_OR_RETURN(scratch, Memory::Allocate(floats * sizeof(float)));
  }
  rope_.resize(size_t{tokens} * config_.rope_dims);
  return OkStatus();
}

void Forward::ListWork(std::span<const SequenceStep> sequences) {
  tokens_.clear();
  attention_.clear();
  output_tokens_.clear();
  const uint32_t group = config_.heads / config_.kv_heads;
  const uint32_t tile = std::clamp(kMaxAttentionRows / group, 1u, kQueryTileTokens);
  for (uint32_t index = 0; index < sequences.size(); ++index) {
    const SequenceStep& sequence = sequences[index];
    const auto row = static_cast<uint32_t>(tokens_.size()), count = static_cast<uint32_t>(sequence.tokens.size());
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t position = sequence.start + i;
      const size_t block = sequence.blocks[position / kv::kBlockTokens];
      tokens_.push_back({sequence.tokens[i], position,
                         parts_.kv + block * parts_.layout->block_bytes() +
                             position % kv::kBlockTokens * parts_.layout->row_bytes()});
    }
    for (uint32_t first = 0; first < count; first += tile) {
      for (uint32_t head = 0; head < config_.kv_heads; ++head) {
        attention_.push_back({index, first, std::min(tile, count - first), row + first, head});
      }
    }
    if (sequence.need_logits) output_tokens_.push_back(row + count - 1);
  }
  // The longest first, so that the threads end together.
  std::stable_sort(attention_.begin(), attention_.end(), [&](const AttentionItem& a, const AttentionItem& b) {
    return sequences[a.sequence].start + a.first > sequences[b.sequence].start + b.first;
  });
}

Status Forward::Step(std::span<const SequenceStep> sequences, LayerObserver* observer) {
  ListWork(sequences);
  MR_RETURN_IF_ERROR(Reserve());
  logits_.clear();
  for (size_t i = 0; i < output_tokens_.size(); ++i) {
    logits_.emplace_back(logit_rows_.values + i * logit_rows_.pitch, parts_.model->vocab);
  }
  parts_.team->Run([&](uint32_t member) { RunMember(sequences, observer, member); });
  return OkStatus();
}

void Forward::RunMember(std::span<const SequenceStep> sequences, LayerObserver* observer, uint32_t member) {
  ThreadTeam& team = *parts_.team;
  team.ForEach(static_cast<uint32_t>(tokens_.size()), [&](uint32_t token) { Embed(token); });
  for (uint32_t layer = 0; layer < config_.layers; ++layer) {
    for (const Stage& stage : parts_.plan->layers[layer]) {
      RunStage(stage, layer, sequences, member);
      if (member == 0 && stage.stores_kv && observer != nullptr) observer->OnLayerDone(layer);
    }
    if (member == 0) parts_.progress->fetch_add(1, std::memory_order_relaxed);
  }
  const auto outputs = static_cast<uint32_t>(output_tokens_.size());
  if (outputs == 0) return;
  team.ForEach(outputs, [&](uint32_t index) { NormForOutput(index); });
  const Stage& output = parts_.plan->output;
  team.ForEach(static_cast<uint32_t>(output.runs.size()), [&](uint32_t run) {
    RunPanels(output.linears.front(), output.runs[run], outputs, logit_rows_, member);
  });
}

void Forward::RunStage(const Stage& stage, uint32_t layer, std::span<const SequenceStep> sequences, uint32_t member) {
  ThreadTeam& team = *parts_.team;
  const auto tokens = static_cast<uint32_t>(tokens_.size());
  switch (stage.kind) {
    case Stage::Kind::kTokens:
      return team.ForEach(tokens, [&](uint32_t token) { RunTokenOps(stage, layer, token); });
    case Stage::Kind::kLinears:
      return team.ForEach(static_cast<uint32_t>(stage.runs.size()), [&](uint32_t index) {
        const PanelRun& run = stage.runs[index];
        const Linear& linear = stage.linears[run.linear];
        RunPanels(linear, run, tokens, At(linear.out), member);
      });
    case Stage::Kind::kAttention:
      return team.ForEach(static_cast<uint32_t>(attention_.size()), [&](uint32_t index) {
        Attend(attention_[index], sequences[attention_[index].sequence], layer, member);
      });
  }
}

void Forward::Embed(uint32_t token) {
  const PackedTensor& embedding = *parts_.plan->embedding;
  UnpackRow(embedding.shape, embedding.data, static_cast<uint32_t>(tokens_[token].id),
            Row(Activation::kResidual, token));
  const uint32_t half = config_.rope_dims / 2;
  float* cos = rope_.data() + size_t{token} * config_.rope_dims;
  RopeAngles(parts_.plan->rope_frequencies, tokens_[token].position, cos, cos + half);
}

void Forward::RunTokenOps(const Stage& stage, uint32_t layer, uint32_t token) {
  for (const TokenOp& op : stage.token_ops) RunTokenOp(op, layer, token);
  for (Activation activation : stage.quantize) {
    parts_.kernels->quantize(Row(activation, token), config_.Width(activation), token, At(activation).codes);
  }
}

void Forward::RunTokenOp(const TokenOp& op, uint32_t layer, uint32_t token) {
  switch (op.kind) {
    case OpKind::kRmsNorm:
      return parts_.kernels->rms_norm(Row(op.in, token), op.weight, config_.rms_epsilon, config_.Width(op.in),
                                      Row(op.out, token));
    case OpKind::kSwiGlu:
      return parts_.kernels->swiglu(Row(op.in, token), Row(op.second, token), config_.Width(op.in), Row(op.out, token));
    case OpKind::kRope: {
      const float* cos = rope_.data() + size_t{token} * config_.rope_dims;
      return parts_.kernels->rope({
          .rows = Row(op.out, token),
          .heads = config_.Width(op.out) / config_.head_dim,
          .head_dim = config_.head_dim,
          .rotated = config_.rope_dims,
          .interleaved = parts_.model->architecture->rope_pairing == model::RopePairing::kInterleaved,
          .cos = cos,
          .sin = cos + config_.rope_dims / 2,
      });
    }
    case OpKind::kStoreKv:
      return StoreKv(layer, token);
    case OpKind::kLinear:
    case OpKind::kAttention:
      return;
  }
}

void Forward::StoreKv(uint32_t layer, uint32_t token) {
  std::byte* row = tokens_[token].kv_row + parts_.layout->layer_offset(layer);
  const uint32_t width = config_.kv_heads * config_.head_dim;
  for (Activation activation : {Activation::kKey, Activation::kValue}) {
    if (parts_.layout->type == kv::ElementType::kF16) {
      parts_.kernels->to_half(Row(activation, token), width, row);
    } else {
      std::memcpy(row, Row(activation, token), width * sizeof(float));
    }
    row += parts_.layout->row_bytes() / 2;
  }
}

void Forward::RunPanels(const Linear& linear, const PanelRun& run, uint32_t tokens, Rows& out, uint32_t member) {
  const TensorShape& shape = linear.weight->shape;
  const Rows& in = At(linear.in);
  MatMulArgs args{
      .panels = linear.weight->data + run.first * shape.part_bytes,
      .panel_bytes = shape.part_bytes,
      .panel_count = run.count,
      .cols = shape.cols,
      .tokens = tokens,
      .quantized = in.codes,
      .input = in.values,
      .input_pitch = in.pitch,
      .out = out.values + run.first * kPanelRows,
      .out_pitch = out.pitch,
      .bias = linear.bias == nullptr ? nullptr : linear.bias + run.first * kPanelRows,
      .accumulate = linear.accumulate,
  };
  if (shape.storage == Storage::kPanels) return parts_.kernels->matmul[static_cast<int>(shape.packing)](args);
  auto* panel = reinterpret_cast<float*>(scratch_[member].data());
  float* row = panel + size_t{shape.cols} * kPanelRows;
  args.panels = reinterpret_cast<const std::byte*>(panel);
  args.panel_count = 1;
  for (uint32_t i = 0; i < run.count; ++i) {
    ExpandRawPanel(shape, linear.weight->data, run.first + i, row, panel);
    parts_.kernels->matmul[static_cast<int>(Packing::kF32)](args);
    args.out += kPanelRows;
    if (args.bias != nullptr) args.bias += kPanelRows;
  }
}

void Forward::Attend(const AttentionItem& item, const SequenceStep& sequence, uint32_t layer, uint32_t member) {
  const kv::Layout& layout = *parts_.layout;
  const uint32_t group = config_.heads / config_.kv_heads;
  const size_t head_bytes = config_.head_dim * kv::ElementBytes(layout.type);
  const size_t column = size_t{item.kv_head} * group * config_.head_dim;
  parts_.kernels->attention({
      .kv = parts_.kv + layout.layer_offset(layer),
      .block_bytes = layout.block_bytes(),
      .blocks = sequence.blocks.data(),
      .row_bytes = layout.row_bytes(),
      .key_offset = item.kv_head * head_bytes,
      .value_offset = layout.row_bytes() / 2 + item.kv_head * head_bytes,
      .half = layout.type == kv::ElementType::kF16,
      .head_dim = config_.head_dim,
      .query_heads = group,
      .tokens = item.tokens,
      .position = sequence.start + item.first,
      .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
      .query = Row(Activation::kQuery, item.row) + column,
      .query_pitch = At(Activation::kQuery).pitch,
      .out = Row(Activation::kAttended, item.row) + column,
      .out_pitch = At(Activation::kAttended).pitch,
      .scratch = reinterpret_cast<float*>(scratch_[member].data()),
  });
}

// kNormed is free after the last layer: its first rows take the normed rows that logits come from.
void Forward::NormForOutput(uint32_t index) {
  float* out = Row(Activation::kNormed, index);
  parts_.kernels->rms_norm(Row(Activation::kResidual, output_tokens_[index]), parts_.plan->output_norm,
                           config_.rms_epsilon, config_.hidden, out);
  if (At(Activation::kNormed).quantized) {
    parts_.kernels->quantize(out, config_.hidden, index, At(Activation::kNormed).codes);
  }
}

}  // namespace millrace::engine::cpu
