// What every engine::Backend must do, whatever it computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/engine/backend.h"
#include "common/engine/cpu_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/tiny_model.h"

namespace millrace::engine {
namespace {

constexpr uint32_t kBlocks = 16;

std::unique_ptr<Backend> OpenCpu(cpu::Isa isa, uint32_t threads) {
  const test::TemporaryFile file(support::TinyModelBytes({.context = 512}));
  CpuOptions options{.model_path = file.path(), .threads = threads, .isa = isa};
  options.kv_blocks = kBlocks;
  options.use_cache = false;
  return *OpenCpuBackend(options);
}

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Backend>()> open;
};

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds = {
      {"fake", [] { return std::make_unique<support::FakeBackend>(support::FakeBackendOptions{.blocks = kBlocks}); }},
      {"cpu_avx2", [] { return OpenCpu(cpu::Isa::kAvx2, 2); }}};
  if (cpu::MachineHas(cpu::Isa::kAvx512)) kinds.push_back({"cpu_avx512", [] { return OpenCpu(cpu::Isa::kAvx512, 1); }});
  return kinds;
}

class BackendTest : public testing::TestWithParam<Kind> {
 protected:
  using Blocks = std::vector<kv::BlockIndex>;

  std::vector<int32_t> Tokens(size_t count, int32_t salt) const {
    std::vector<int32_t> tokens(count);
    for (size_t i = 0; i < count; ++i) {
      tokens[i] = static_cast<int32_t>((static_cast<size_t>(salt) + i * 31) % backend_->vocab_size());
    }
    return tokens;
  }

  static std::vector<float> Copy(std::span<const float> row) { return {row.begin(), row.end()}; }

  // Logits after the last token, computed `chunk` tokens at a time.
  static std::vector<float> Compute(Backend& backend, const std::vector<int32_t>& tokens, const Blocks& blocks,
                                    uint32_t chunk) {
    for (uint32_t start = 0; start < tokens.size(); start += chunk) {
      const SequenceStep step{std::span(tokens).subspan(start, std::min<size_t>(chunk, tokens.size() - start)), start,
                              blocks, true};
      const Status status = backend.Step({&step, 1}, nullptr);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    return Copy(backend.logits().front());
  }

  std::span<std::byte> Row(Backend& backend, kv::BlockIndex block, uint32_t layer, uint32_t row) const {
    const kv::Layout& layout = backend.layout();
    return backend.kv_memory().subspan(
        block * layout.block_bytes() + layout.layer_offset(layer) + row * layout.row_bytes(), layout.row_bytes());
  }

  const std::unique_ptr<Backend> backend_ = GetParam().open();
};

TEST_P(BackendTest, MemoryIsAsTheLayoutSays) {
  EXPECT_EQ(backend_->block_count(), kBlocks);
  EXPECT_EQ(backend_->kv_memory().size(), kBlocks * backend_->layout().block_bytes());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(backend_->kv_memory().data()) % 64, 0u);
  EXPECT_FALSE(backend_->description().empty());
  EXPECT_FALSE(backend_->layout().numerics_class.empty());
}

TEST_P(BackendTest, ChunksDoNotChangeLogitsNorKv) {
  const auto tokens = Tokens(150, 3);
  const Blocks whole = {4, 2, 9}, parts = {1, 15, 7};
  const auto want = Compute(*backend_, tokens, whole, 150);
  for (uint32_t chunk : {1u, 63u, 64u, 100u}) {
    EXPECT_EQ(Compute(*backend_, tokens, parts, chunk), want) << chunk;
    for (uint32_t position = 0; position < 150; ++position) {
      for (uint32_t layer = 0; layer < backend_->layout().layers; ++layer) {
        const auto a = Row(*backend_, whole[position / 64], layer, position % 64);
        const auto b = Row(*backend_, parts[position / 64], layer, position % 64);
        ASSERT_TRUE(std::ranges::equal(a, b)) << "position " << position << " layer " << layer;
      }
    }
  }
}

TEST_P(BackendTest, CompanyInTheStepDoesNotChangeLogits) {
  const auto first = Tokens(70, 1), second = Tokens(33, 2), third = Tokens(1, 5);
  const auto want_first = Compute(*backend_, first, {0, 1}, 70);
  const auto want_second = Compute(*backend_, second, {2}, 33);
  const auto want_third = Compute(*backend_, third, {3}, 1);
  const Blocks a = {4, 5}, b = {6}, c = {7};
  const SequenceStep early{std::span(first).first(69), 0, a, false};
  ASSERT_TRUE(backend_->Step({&early, 1}, nullptr).ok());
  EXPECT_TRUE(backend_->logits().empty());
  const std::vector<SequenceStep> steps = {
      {second, 0, b, true}, {std::span(first).last(1), 69, a, true}, {third, 0, c, true}};
  ASSERT_TRUE(backend_->Step(steps, nullptr).ok());
  ASSERT_EQ(backend_->logits().size(), 3u);
  EXPECT_EQ(Copy(backend_->logits()[0]), want_second);
  EXPECT_EQ(Copy(backend_->logits()[1]), want_first);
  EXPECT_EQ(Copy(backend_->logits()[2]), want_third);
}

TEST_P(BackendTest, LogitsAreOfTheSequencesThatAskForThem) {
  const auto first = Tokens(5, 1), second = Tokens(6, 2), third = Tokens(7, 3);
  const auto want = Compute(*backend_, second, {9}, 6);
  const Blocks a = {0}, b = {1}, c = {2};
  const std::vector<SequenceStep> steps = {{first, 0, a, false}, {second, 0, b, true}, {third, 0, c, false}};
  ASSERT_TRUE(backend_->Step(steps, nullptr).ok());
  ASSERT_EQ(backend_->logits().size(), 1u);
  EXPECT_EQ(backend_->logits().front().size(), backend_->vocab_size());
  EXPECT_EQ(Copy(backend_->logits().front()), want);
}

TEST_P(BackendTest, KvCopiedToAnotherBackendContinuesThere) {
  const auto other = GetParam().open();
  const auto tokens = Tokens(130, 8);
  const Blocks here = {3, 4, 5}, there = {12, 0, 6};
  const auto want = Compute(*backend_, tokens, here, 130);
  const size_t block_bytes = backend_->layout().block_bytes();
  for (size_t i = 0; i < 3; ++i) {
    std::memcpy(other->kv_memory().data() + there[i] * block_bytes,
                backend_->kv_memory().data() + here[i] * block_bytes, block_bytes);
  }
  const SequenceStep last{std::span(tokens).last(1), 129, there, true};
  ASSERT_TRUE(other->Step({&last, 1}, nullptr).ok());
  EXPECT_EQ(Copy(other->logits().front()), want);
}

TEST_P(BackendTest, WritesTheRowsOfItsTokensOnly) {
  std::ranges::fill(backend_->kv_memory(), std::byte{0x3A});
  const auto tokens = Tokens(70, 4);
  const Blocks blocks = {7, 2};
  const SequenceStep step{std::span(tokens).first(10), 58, blocks, false};
  ASSERT_TRUE(backend_->Step({&step, 1}, nullptr).ok());
  const auto untouched = [](std::span<std::byte> row) {
    return std::ranges::all_of(row, [](std::byte b) { return b == std::byte{0x3A}; });
  };
  for (kv::BlockIndex block = 0; block < kBlocks; ++block) {
    for (uint32_t layer = 0; layer < backend_->layout().layers; ++layer) {
      for (uint32_t row = 0; row < kv::kBlockTokens; ++row) {
        const bool written = (block == 7 && row >= 58) || (block == 2 && row < 4);
        ASSERT_EQ(untouched(Row(*backend_, block, layer, row)), !written) << block << " " << layer << " " << row;
      }
    }
  }
}

// Keeps what the rows of a layer held when it was announced.
class Recorder final : public LayerObserver {
 public:
  explicit Recorder(std::function<std::vector<std::byte>(uint32_t)> read) : read_(std::move(read)) {}
  void OnLayerDone(uint32_t layer) override {
    layers.push_back(layer);
    rows.push_back(read_(layer));
  }
  std::vector<uint32_t> layers;
  std::vector<std::vector<std::byte>> rows;

 private:
  const std::function<std::vector<std::byte>(uint32_t)> read_;
};

TEST_P(BackendTest, LayersAreAnnouncedInOrderWithTheirRowsInPlace) {
  const auto tokens = Tokens(40, 6);
  const Blocks blocks = {11};
  Recorder recorder([&](uint32_t layer) {
    const auto first = Row(*backend_, 11, layer, 0);
    return std::vector<std::byte>(first.data(), first.data() + 40 * first.size());
  });
  const SequenceStep step{tokens, 0, blocks, true};
  const uint64_t before = backend_->progress();
  ASSERT_TRUE(backend_->Step({&step, 1}, &recorder).ok());
  ASSERT_EQ(recorder.layers.size(), backend_->layout().layers);
  EXPECT_GE(backend_->progress(), before + backend_->layout().layers);
  for (uint32_t layer = 0; layer < recorder.layers.size(); ++layer) {
    EXPECT_EQ(recorder.layers[layer], layer);
    const auto row = Row(*backend_, 11, layer, 0);
    EXPECT_EQ(std::memcmp(recorder.rows[layer].data(), row.data(), recorder.rows[layer].size()), 0) << layer;
  }
}

TEST_P(BackendTest, BadSequencesAreRefusedAndNothingRuns) {
  const auto good = Tokens(5, 1), many = Tokens(65, 1);
  const Blocks one = {0}, outside = {kBlocks};
  const auto vocab = static_cast<int32_t>(backend_->vocab_size());
  const std::vector<int32_t> none, negative = {1, -1}, beyond = {vocab};
  const Blocks all(kv::BlocksFor(backend_->context_tokens() + 1), 1);
  const std::vector<std::pair<const char*, SequenceStep>> bad = {
      {"no tokens", {none, 0, one, true}},
      {"negative id", {negative, 0, one, true}},
      {"id beyond the vocabulary", {beyond, 0, one, true}},
      {"too few blocks", {many, 0, one, true}},
      {"too few blocks for the start", {good, 60, one, true}},
      {"block outside", {good, 0, outside, true}},
      {"beyond the context", {good, backend_->context_tokens(), all, true}},
      {"a start that wraps", {good, UINT32_MAX - 1, all, true}},
  };
  std::ranges::fill(backend_->kv_memory(), std::byte{1});
  const uint64_t before = backend_->progress();
  for (const auto& [what, step] : bad) {
    const Blocks two = {2};
    const std::vector<SequenceStep> steps = {{good, 0, two, true}, step};
    const Status status = backend_->Step(steps, nullptr);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << what;
    EXPECT_THAT(status.message(), testing::HasSubstr("1")) << what;
  }
  EXPECT_EQ(backend_->progress(), before);
  EXPECT_TRUE(std::ranges::all_of(backend_->kv_memory(), [](std::byte b) { return b == std::byte{1}; }));
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendTest, testing::ValuesIn(Kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace::engine
