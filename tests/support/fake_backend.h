#pragma once
// FakeBackend: an engine::Backend small enough to check every byte of KV. A row is a hash of its token, position and
// layer, chained to the row before it as read back from KV memory; logits are a hash of all KV bytes of the sequence,
// so KV that is missing, stale, corrupt or of another sequence changes the next token. Deterministic; one instance's
// Step on one thread at a time, everything else thread-safe.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/engine/backend.h"
#include "common/request/generation.h"

namespace millrace::support {

struct FakeBackendOptions {
  uint32_t blocks = 64;
  uint32_t layers = 3;
  uint32_t vocab = 101;
  uint32_t context_tokens = 2048;
  std::string model_digest = "fake-model";
  std::string numerics_class = "fake";
};

class FakeBackend final : public engine::Backend {
 public:
  explicit FakeBackend(FakeBackendOptions options = {});

  const kv::Layout& layout() const override { return layout_; }
  uint32_t vocab_size() const override { return options_.vocab; }
  uint32_t context_tokens() const override { return options_.context_tokens; }
  std::span<std::byte> kv_memory() override;
  uint32_t block_count() const override { return options_.blocks; }
  Status Step(std::span<const engine::SequenceStep> sequences, engine::LayerObserver* observer) override;
  const std::vector<std::span<const float>>& logits() const override { return logits_; }
  uint64_t progress() const override { return progress_.load(); }
  std::string description() const override { return "fake"; }

  // Called on the stepping thread before a step, with the tokens in it, and before each of its layers: a test's place
  // to block, to advance time, to kill somebody. A failed status from `on_step` fails the step.
  std::function<Status(std::span<const engine::SequenceStep>)> on_step;
  std::function<void(uint32_t layer)> on_layer;

  uint64_t steps() const { return steps_.load(); }
  uint64_t computed_tokens() const { return computed_tokens_.load(); }

 private:
  std::byte* Row(const engine::SequenceStep& sequence, uint32_t layer, uint32_t position);
  void ComputeLayer(const engine::SequenceStep& sequence, uint32_t layer);
  void ComputeLogits(const engine::SequenceStep& sequence, std::vector<float>& row);
  Status Check(std::span<const engine::SequenceStep> sequences) const;

  const FakeBackendOptions options_;
  kv::Layout layout_;
  std::unique_ptr<std::byte[]> storage_;
  std::byte* memory_;
  std::vector<std::vector<float>> logit_rows_;
  std::vector<std::span<const float>> logits_;
  std::atomic<uint64_t> progress_{0};
  std::atomic<uint64_t> steps_{0};
  std::atomic<uint64_t> computed_tokens_{0};
};

// A prompt of `length` ids in [0, vocab) that depends on `seed` in every position.
std::vector<request::TokenId> FakePrompt(uint32_t length, uint64_t seed, uint32_t vocab = 101);

}  // namespace millrace::support
