#include "tests/support/fake_backend.h"

#include <cstring>
#include <memory>
#include <set>

#include "common/base/random.h"

namespace millrace::support {
namespace {

constexpr size_t kAlignment = 64;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t ReadWord(const std::byte* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

}  // namespace

FakeBackend::FakeBackend(FakeBackendOptions options) : options_(std::move(options)) {
  layout_.layers = options_.layers;
  layout_.kv_heads = 1;
  layout_.head_dim = 4;
  layout_.type = kv::ElementType::kF16;
  layout_.model_digest = options_.model_digest;
  layout_.numerics_class = options_.numerics_class;
  const size_t bytes = layout_.block_bytes() * options_.blocks;
  storage_ = std::make_unique<std::byte[]>(bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(storage_.get());
  memory_ = storage_.get() + (kAlignment - address % kAlignment) % kAlignment;
  std::memset(memory_, 0xEE, bytes);  // memory never written must not look like zeros that happen to be right
}

std::span<std::byte> FakeBackend::kv_memory() { return {memory_, layout_.block_bytes() * options_.blocks}; }

std::byte* FakeBackend::Row(const engine::SequenceStep& sequence, uint32_t layer, uint32_t position) {
  const kv::BlockIndex block = sequence.blocks[position / kv::kBlockTokens];
  return memory_ + block * layout_.block_bytes() + layout_.layer_offset(layer) +
         (position % kv::kBlockTokens) * layout_.row_bytes();
}

void FakeBackend::ComputeLayer(const engine::SequenceStep& sequence, uint32_t layer) {
  for (uint32_t i = 0; i < sequence.tokens.size(); ++i) {
    const uint32_t position = sequence.start + i;
    const uint64_t own = Mix(Mix(static_cast<uint64_t>(sequence.tokens[i]), position), layer);
    const uint64_t before = position == 0 ? 0 : ReadWord(Row(sequence, layer, position - 1) + sizeof(uint64_t));
    const uint64_t words[2] = {own, Mix(before, own)};
    std::memcpy(Row(sequence, layer, position), words, sizeof(words));
  }
}

void FakeBackend::ComputeLogits(const engine::SequenceStep& sequence, std::vector<float>& row) {
  uint64_t hash = 0;
  const auto positions = static_cast<uint32_t>(sequence.start + sequence.tokens.size());
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    for (uint32_t position = 0; position < positions; ++position) {
      const std::byte* bytes = Row(sequence, layer, position);
      hash = Mix(Mix(hash, ReadWord(bytes)), ReadWord(bytes + sizeof(uint64_t)));
    }
  }
  row.resize(options_.vocab);
  for (uint32_t id = 0; id < options_.vocab; ++id) {
    row[id] = 8.0f * UniformFloat(static_cast<uint32_t>(Mix(hash, id) >> 32)) - 4.0f;
  }
}

Status FakeBackend::Check(std::span<const engine::SequenceStep> sequences) const {
  std::set<kv::BlockIndex> written;
  for (size_t k = 0; k < sequences.size(); ++k) {
    const auto bad = [&](const char* why) { return InvalidArgument("sequence " + std::to_string(k) + ": " + why); };
    const engine::SequenceStep& sequence = sequences[k];
    if (sequence.tokens.empty()) return bad("no tokens");
    const uint64_t end = sequence.start + sequence.tokens.size();
    if (end > options_.context_tokens) return bad("beyond the context");
    if (sequence.blocks.size() < kv::BlocksFor(end)) return bad("too few blocks");
    for (const int32_t token : sequence.tokens) {
      if (token < 0 || static_cast<uint32_t>(token) >= options_.vocab) return bad("token out of range");
    }
    for (uint32_t i = 0; i < kv::BlocksFor(end); ++i) {
      if (sequence.blocks[i] >= options_.blocks) return bad("no such block");
      if (i >= sequence.start / kv::kBlockTokens && !written.insert(sequence.blocks[i]).second) {
        return bad("writes a block of another sequence");
      }
    }
  }
  return OkStatus();
}

Status FakeBackend::Step(std::span<const engine::SequenceStep> sequences, engine::LayerObserver* observer) {
  MR_RETURN_IF_ERROR(Check(sequences));
  if (on_step) MR_RETURN_IF_ERROR(on_step(sequences));
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
    if (on_layer) on_layer(layer);
    for (const engine::SequenceStep& sequence : sequences) ComputeLayer(sequence, layer);
    progress_.fetch_add(1);
    if (observer) observer->OnLayerDone(layer);
  }
  size_t rows = 0;
  for (const engine::SequenceStep& sequence : sequences) {
    computed_tokens_.fetch_add(sequence.tokens.size());
    if (!sequence.need_logits) continue;
    if (logit_rows_.size() <= rows) logit_rows_.emplace_back();
    ComputeLogits(sequence, logit_rows_[rows++]);
  }
  logits_.clear();
  for (size_t k = 0; k < rows; ++k) logits_.emplace_back(logit_rows_[k]);
  steps_.fetch_add(1);
  return OkStatus();
}

std::vector<request::TokenId> FakePrompt(uint32_t length, uint64_t seed, uint32_t vocab) {
  std::vector<request::TokenId> tokens(length);
  for (uint32_t i = 0; i < length; ++i) tokens[i] = static_cast<request::TokenId>(Mix(seed, i) % vocab);
  return tokens;
}

}  // namespace millrace::support
