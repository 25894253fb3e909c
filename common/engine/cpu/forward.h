#pragma once
// Runs steps of one model on a team of threads over paged KV memory.

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "common/engine/backend.h"
#include "common/engine/cpu/kernels.h"
#include "common/engine/cpu/plan.h"
#include "common/engine/cpu/thread_team.h"

namespace millrace::engine::cpu {

// What a Forward works on; all outlive it.
struct ForwardParts {
  const CpuModel* model = nullptr;
  const Plan* plan = nullptr;
  const Kernels* kernels = nullptr;
  const kv::Layout* layout = nullptr;
  std::byte* kv = nullptr;
  ThreadTeam* team = nullptr;
  std::atomic<uint64_t>* progress = nullptr;  // grows by 1 a layer
};

class Forward {
 public:
  explicit Forward(const ForwardParts& parts);

  // The sequences are valid (Backend::Step). Calls `observer`, when not null, on the calling thread.
  Status Step(std::span<const SequenceStep> sequences, LayerObserver* observer);
  const std::vector<std::span<const float>>& logits() const { return logits_; }

 private:
  struct Token {
    int32_t id;
    uint32_t position;
    std::byte* kv_row;  // in layer 0
  };
  struct AttentionItem {
    uint32_t sequence;
    uint32_t first;  // token, of the sequence's part of the step
    uint32_t tokens;
    uint32_t row;  // of the first token in the activations
    uint32_t kv_head;
  };
  // Rows of one activation, and their 8-bit form when a matrix reads that. Grows, never shrinks.
  struct Rows {
    Memory memory;
    float* values = nullptr;
    size_t pitch = 0;
    bool quantized = false;
    QuantizedRows codes;
  };

  void ListWork(std::span<const SequenceStep> sequences);
  Status Reserve();
  Status ReserveRows(Rows& rows, uint32_t capacity) const;
  void RunMember(std::span<const SequenceStep> sequences, LayerObserver* observer, uint32_t member);
  void RunStage(const Stage& stage, uint32_t layer, std::span<const SequenceStep> sequences, uint32_t member);
  void Embed(uint32_t token);
  void RunTokenOps(const Stage& stage, uint32_t layer, uint32_t token);
  void RunTokenOp(const TokenOp& op, uint32_t layer, uint32_t token);
  void StoreKv(uint32_t layer, uint32_t token);
  void RunPanels(const Linear& linear, const PanelRun& run, uint32_t tokens, Rows& out, uint32_t member);
  void Attend(const AttentionItem& item, const SequenceStep& sequence, uint32_t layer, uint32_t member);
  void NormForOutput(uint32_t index);
  Rows& At(model::Activation activation) { return rows_[static_cast<size_t>(activation)]; }
  float* Row(model::Activation activation, uint32_t token) {
    return At(activation).values + token * At(activation).pitch;
  }

  const ForwardParts parts_;
  const model::ModelConfig& config_;
  std::array<Rows, model::kActivations> rows_;
  Rows logit_rows_;
  std::vector<std::span<const float>> logits_;
  std::vector<Memory> scratch_;  // of each member
  uint32_t capacity_ = 0;        // tokens that rows_ hold
  uint32_t logit_capacity_ = 0;

  // Of the running step.
  std::vector<Token> tokens_;
  std::vector<float> rope_;  // [token][cos | sin]
  std::vector<AttentionItem> attention_;
  std::vector<uint32_t> output_tokens_;
};

}  // namespace millrace::engine::cpu
