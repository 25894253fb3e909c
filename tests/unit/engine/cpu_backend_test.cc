// The whole forward pass: equal bits for every batch, chunking, number of threads and instruction set; near a plain
// computation in double.
#include "common/engine/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "common/base/random.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/tiny_model.h"

namespace millrace::engine {
namespace {

using model::TensorType;
using support::TinyModelOptions;

constexpr uint32_t kBlocks = 40;

class TinyFile {
 public:
  explicit TinyFile(const TinyModelOptions& options) : disk_(support::TinyModelBytes(options)) {}
  const model::GgufFile& operator*() const { return *file_; }

 private:
  const test::TemporaryFile disk_;
  const std::shared_ptr<const model::GgufFile> file_ = *model::GgufFile::Open(disk_.path());
};

struct Variant {
  uint32_t threads = 1;
  cpu::Isa isa = cpu::Isa::kAuto;
  kv::ElementType kv_type = kv::ElementType::kF16;
};

std::unique_ptr<Backend> OpenVariant(const model::GgufFile& file, const Variant& variant) {
  CpuOptions options{.threads = variant.threads, .isa = variant.isa, .kv_type = variant.kv_type};
  options.kv_blocks = kBlocks;
  options.use_cache = false;
  auto backend = OpenCpuBackend(options, file, "digest");
  EXPECT_TRUE(backend.ok()) << backend.status().ToString();
  return *std::move(backend);
}

std::vector<Variant> Variants(kv::ElementType kv_type) {
  std::vector<Variant> variants = {{1, cpu::Isa::kAvx2, kv_type}, {3, cpu::Isa::kAvx2, kv_type}};
  if (cpu::MachineHas(cpu::Isa::kAvx512)) {
    variants.push_back({1, cpu::Isa::kAvx512, kv_type});
    variants.push_back({2, cpu::Isa::kAvx512, kv_type});
  }
  return variants;
}

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<kv::BlockIndex> blocks;
  uint32_t done = 0;
};

// Logits after each position at which they were asked for, by sequence and position.
using Logits = std::map<std::pair<size_t, uint32_t>, std::vector<float>>;

// Runs the sequences to their ends in random steps: any subset, any chunk, logits always asked for.
Logits RunRandomly(Backend& backend, std::vector<Sequence> sequences, uint64_t seed, uint32_t largest_chunk) {
  Rng rng(seed);
  Logits logits;
  for (;;) {
    std::vector<SequenceStep> steps;
    std::vector<size_t> members;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& sequence = sequences[i];
      const auto left = static_cast<uint32_t>(sequence.tokens.size()) - sequence.done;
      if (left == 0 || (!steps.empty() && rng.Below(3) == 0)) continue;
      const auto count = static_cast<uint32_t>(1 + rng.Below(std::min(left, largest_chunk)));
      steps.push_back({std::span(sequence.tokens).subspan(sequence.done, count), sequence.done, sequence.blocks, true});
      members.push_back(i);
      sequence.done += count;
    }
    if (steps.empty()) return logits;
    const Status status = backend.Step(steps, nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    for (size_t k = 0; k < members.size(); ++k) {
      logits[{members[k], sequences[members[k]].done}].assign(backend.logits()[k].begin(), backend.logits()[k].end());
    }
  }
}

std::vector<Sequence> RandomSequences(const TinyModelOptions& options, uint64_t seed, size_t count) {
  Rng rng(seed);
  std::vector<kv::BlockIndex> free(kBlocks);
  std::iota(free.begin(), free.end(), 0);
  for (size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[rng.Below(i)]);
  std::vector<Sequence> sequences(count);
  for (Sequence& sequence : sequences) {
    const uint64_t length = 1 + rng.Below(150);
    for (uint64_t i = 0; i < length; ++i) sequence.tokens.push_back(static_cast<int32_t>(rng.Below(options.vocab)));
    for (uint32_t i = 0; i < kv::BlocksFor(length); ++i) {
      sequence.blocks.push_back(free.back());
      free.pop_back();
    }
  }
  return sequences;
}

// Every logit of `got` that `want` has too is the same bits; `least` of them are compared.
void ExpectSameWhereBoth(const Logits& want, const Logits& got, size_t least) {
  size_t compared = 0;
  for (const auto& [key, logits] : got) {
    const auto found = want.find(key);
    if (found == want.end()) continue;
    ++compared;
    ASSERT_EQ(std::memcmp(found->second.data(), logits.data(), logits.size() * sizeof(float)), 0)
        << "sequence " << key.first << " after " << key.second << " tokens";
  }
  EXPECT_GE(compared, least);
}

class ExactnessTest : public testing::TestWithParam<TinyModelOptions> {};

TEST_P(ExactnessTest, SameBitsForEveryBatchChunkThreadsAndIsa) {
  const TinyModelOptions options = GetParam();
  const TinyFile file(options);
  for (kv::ElementType kv_type : {kv::ElementType::kF16, kv::ElementType::kF32}) {
    const std::vector<Sequence> sequences = RandomSequences(options, 11 + options.seed, 4);
    // One token a step, each sequence alone: logits at every position.
    Logits want;
    {
      const auto backend = OpenVariant(*file, {1, cpu::Isa::kAuto, kv_type});
      for (size_t i = 0; i < sequences.size(); ++i) {
        for (auto& [key, logits] : RunRandomly(*backend, {sequences[i]}, 1, 1)) {
          for (float logit : logits) ASSERT_TRUE(std::isfinite(logit));
          want[{i, key.second}] = std::move(logits);
        }
      }
    }
    uint64_t seed = 100;
    for (const Variant& variant : Variants(kv_type)) {
      const auto backend = OpenVariant(*file, variant);
      for (uint32_t largest_chunk : {7u, 40u, 200u}) {
        SCOPED_TRACE(backend->description() + " chunks of up to " + std::to_string(largest_chunk));
        ExpectSameWhereBoth(want, RunRandomly(*backend, sequences, ++seed, largest_chunk), sequences.size());
      }
    }
  }
}

std::vector<TinyModelOptions> Models() {
  std::vector<TinyModelOptions> models;
  for (TensorType type :
       {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0, TensorType::kF16, TensorType::kBF16, TensorType::kF32,
        TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K}) {
    models.push_back({.type = type, .seed = models.size() + 1});
  }
  models.push_back({.type = TensorType::kQ4_1, .embedding_type = TensorType::kQ6_K, .tied = false, .biases = true});
  models.push_back(
      {.type = TensorType::kQ8_0, .hidden = 96, .feed_forward = 160, .heads = 3, .kv_heads = 1, .head_dim = 32});
  models.push_back({.type = TensorType::kF32,
                    .embedding_type = TensorType::kF16,
                    .hidden = 88,
                    .feed_forward = 152,
                    .heads = 7,
                    .kv_heads = 7,
                    .head_dim = 16});
  return models;
}

INSTANTIATE_TEST_SUITE_P(Models, ExactnessTest, testing::ValuesIn(Models()), [](const auto& info) {
  return std::string(model::TraitsOf(info.param.type)->name) + "_" + std::to_string(info.index);
});

// The model in double, from the file alone.
class DoubleModel {
 public:
  DoubleModel(const model::GgufFile& file, const TinyModelOptions& options) : file_(file), o_(options) {}

  std::vector<double> Logits(const std::vector<int32_t>& tokens) {
    std::vector<std::vector<double>> residuals;
    const Rows& embedding = Matrix("token_embd.weight");
    for (int32_t id : tokens) residuals.push_back(embedding[static_cast<size_t>(id)]);
    for (uint32_t layer = 0; layer < o_.layers; ++layer) RunLayer("blk." + std::to_string(layer) + ".", residuals);
    const auto normed = Norm(residuals.back(), "output_norm.weight");
    return Times(o_.tied ? embedding : Matrix("output.weight"), normed);
  }

 private:
  using Rows = std::vector<std::vector<double>>;

  const Rows& Matrix(const std::string& name) const {
    Rows& rows = matrices_[name];
    if (!rows.empty()) return rows;
    const model::Tensor& tensor = *file_.Find(name);
    std::vector<std::byte> bytes(tensor.bytes());
    EXPECT_TRUE(file_.ReadRows(tensor, 0, tensor.rows, bytes).ok());
    std::vector<float> row(tensor.cols);
    for (uint64_t i = 0; i < tensor.rows; ++i) {
      model::DequantizeRow(tensor.type, bytes.data() + i * tensor.row_bytes(), tensor.cols, row.data());
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }

  static std::vector<double> Times(const Rows& matrix, const std::vector<double>& x) {
    std::vector<double> out;
    for (const auto& row : matrix) out.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0));
    return out;
  }

  std::vector<double> Norm(const std::vector<double>& x, const std::string& name) const {
    const std::vector<double>& weight = Matrix(name).front();
    const double mean = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
    std::vector<double> out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] / std::sqrt(mean + 1e-5) * weight[i];
    return out;
  }

  std::vector<double> Project(const std::string& name, const std::vector<double>& x) const {
    std::vector<double> out = Times(Matrix(name + ".weight"), x);
    if (file_.Find(name + ".bias") == nullptr) return out;
    const std::vector<double>& bias = Matrix(name + ".bias").front();
    for (size_t i = 0; i < out.size(); ++i) out[i] += bias[i];
    return out;
  }

  void Rotate(std::vector<double>& x, size_t position) const {
    for (size_t i = 0; i < x.size(); i += 2) {
      const double angle =
          static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i % o_.head_dim) / o_.head_dim);
      const double a = x[i], b = x[i + 1];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }

  void RunLayer(const std::string& prefix, Rows& residuals) const {
    Rows keys, values;
    for (size_t t = 0; t < residuals.size(); ++t) {
      const auto normed = Norm(residuals[t], prefix + "attn_norm.weight");
      auto query = Project(prefix + "attn_q", normed);
      keys.push_back(Project(prefix + "attn_k", normed));
      values.push_back(Project(prefix + "attn_v", normed));
      Rotate(query, t);
      Rotate(keys.back(), t);
      Add(residuals[t], Project(prefix + "attn_output", Attend(query, keys, values)));
    }
    for (auto& residual : residuals) {
      const auto normed = Norm(residual, prefix + "ffn_norm.weight");
      auto gate = Project(prefix + "ffn_gate", normed);
      const auto up = Project(prefix + "ffn_up", normed);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      Add(residual, Project(prefix + "ffn_down", gate));
    }
  }

  std::vector<double> Attend(const std::vector<double>& query, const Rows& keys, const Rows& values) const {
    std::vector<double> out(query.size());
    for (uint32_t head = 0; head < o_.heads; ++head) {
      const size_t from = size_t{head} * o_.head_dim, kv = head / (o_.heads / o_.kv_heads) * size_t{o_.head_dim};
      double total = 0;
      for (size_t t = 0; t < keys.size(); ++t) {
        double score = 0;
        for (uint32_t d = 0; d < o_.head_dim; ++d) score += query[from + d] * keys[t][kv + d];
        const double weight = std::exp(score / std::sqrt(o_.head_dim));
        total += weight;
        for (uint32_t d = 0; d < o_.head_dim; ++d) out[from + d] += weight * values[t][kv + d];
      }
      for (uint32_t d = 0; d < o_.head_dim; ++d) out[from + d] /= total;
    }
    return out;
  }

  static void Add(std::vector<double>& x, const std::vector<double>& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const model::GgufFile& file_;
  const TinyModelOptions o_;
  mutable std::map<std::string, Rows> matrices_;
};

class ReferenceTest : public testing::TestWithParam<TinyModelOptions> {};

TEST_P(ReferenceTest, LogitsAreNearThoseComputedInDouble) {
  const TinyModelOptions options = GetParam();
  const TinyFile file(options);
  const auto backend = OpenVariant(*file, {1, cpu::Isa::kAuto, kv::ElementType::kF32});
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 11; ++i) tokens.push_back(i * 37 % static_cast<int32_t>(options.vocab));
  const std::vector<kv::BlockIndex> blocks = {5};
  const SequenceStep step{tokens, 0, blocks, true};
  ASSERT_TRUE(backend->Step({&step, 1}, nullptr).ok());
  const std::vector<double> want = DoubleModel(*file, options).Logits(tokens);
  double squares = 0, errors = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = want[i] - static_cast<double>(backend->logits().front()[i]);
    squares += want[i] * want[i];
    errors += error * error;
  }
  const bool floats = options.type <= TensorType::kF16 || options.type == TensorType::kBF16;
  const bool all_floats = floats && options.embedding_type <= TensorType::kF16;
  EXPECT_LT(std::sqrt(errors / squares), all_floats ? 2e-6 : 4e-2);
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceTest, testing::ValuesIn(Models()), [](const auto& info) {
  return std::string(model::TraitsOf(info.param.type)->name) + "_" + std::to_string(info.index);
});

TEST(CpuBackend, KvCopiedFromAnotherBackendContinuesWithTheSameBits) {
  const TinyModelOptions options{.type = TensorType::kQ4_0};
  const TinyFile file(options);
  const auto prefill = OpenVariant(*file, {2, cpu::Isa::kAuto});
  const auto decode = OpenVariant(*file, {1, cpu::Isa::kAvx2});
  ASSERT_EQ(prefill->layout().Digest(), decode->layout().Digest());
  Sequence sequence = RandomSequences(options, 5, 1).front();
  sequence.tokens.resize(150, 7);
  sequence.blocks = {3, 30, 17};
  const SequenceStep all{sequence.tokens, 0, sequence.blocks, true};
  ASSERT_TRUE(prefill->Step({&all, 1}, nullptr).ok());
  const std::vector<float> want(prefill->logits().front().begin(), prefill->logits().front().end());
  const std::vector<kv::BlockIndex> other = {8, 1, 20};
  const size_t block_bytes = prefill->layout().block_bytes();
  for (size_t i = 0; i < other.size(); ++i) {
    std::memcpy(decode->kv_memory().data() + other[i] * block_bytes,
                prefill->kv_memory().data() + sequence.blocks[i] * block_bytes, block_bytes);
  }
  const SequenceStep last{std::span(sequence.tokens).last(1), 149, other, true};
  ASSERT_TRUE(decode->Step({&last, 1}, nullptr).ok());
  EXPECT_EQ(std::memcmp(want.data(), decode->logits().front().data(), want.size() * sizeof(float)), 0);
}

TEST(CpuBackend, SaysWhatItIs) {
  const TinyFile file({});
  const auto backend = OpenVariant(*file, {2, cpu::Isa::kAvx2});
  EXPECT_EQ(backend->description(), "cpu avx2 2 threads");
  EXPECT_EQ(backend->layout().numerics_class, kCpuNumericsClass);
  EXPECT_EQ(backend->layout().model_digest, "digest");
  EXPECT_EQ(backend->context_tokens(), 512u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(backend->kv_memory().data()) % 64, 0u);
  EXPECT_EQ(backend->kv_memory().size(), kBlocks * backend->layout().block_bytes());
}

Status OpenError(const test::GgufBuilder& builder, const CpuOptions& options = {}) {
  const test::TemporaryFile file(builder.Bytes());
  CpuOptions with_path = options;
  with_path.model_path = file.path();
  with_path.use_cache = false;
  return OpenCpuBackend(with_path).status();
}

test::GgufBuilder Metadata(const std::string& architecture) {
  test::GgufBuilder builder;
  builder.String("general.architecture", architecture);
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 1},
                                                                  {"embedding_length", 64},
                                                                  {"feed_forward_length", 64},
                                                                  {"context_length", 64},
                                                                  {"attention.head_count", 2}}) {
    builder.Uint32(architecture + "." + key, value);
  }
  builder.Float32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  return builder;
}

TEST(CpuBackend, UnknownArchitectureIsNamedBesideThoseWeHave) {
  const Status status = OpenError(Metadata("mamba"));
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr("mamba"), testing::HasSubstr("llama")));
}

TEST(CpuBackend, VariantsThatWeLackAreRefused) {
  EXPECT_EQ(OpenError(Metadata("llama").Uint32("llama.expert_count", 8)).code(), Code::kUnimplemented);
  EXPECT_EQ(OpenError(Metadata("llama").String("llama.rope.scaling.type", "yarn")).code(), Code::kUnimplemented);
  EXPECT_EQ(OpenError(Metadata("llama").Uint32("llama.attention.key_length", 24)).code(), Code::kUnimplemented);
}

TEST(CpuBackend, MissingTensorIsNamed) {
  const Status status = OpenError(Metadata("llama"));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("token_embd.weight"));
}

TEST(CpuBackend, TensorOfAnotherSizeThanTheMetadataSaysIsNamed) {
  // The feed-forward length of the metadata: 512 becomes 576.
  const std::string key = "llama.feed_forward_length";
  std::string changed = support::TinyModelBytes({});
  changed[changed.find(key) + key.size() + 4] = static_cast<char>(64);
  const test::TemporaryFile disk(changed);
  CpuOptions cpu_options{.model_path = disk.path()};
  cpu_options.use_cache = false;
  const Status status = OpenCpuBackend(cpu_options).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("ffn_gate.weight"));
}

TEST(CpuBackend, MissingModelIsNotFound) {
  EXPECT_EQ(OpenCpuBackend({.model_path = "/nonexistent/model.gguf"}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace millrace::engine
