// Our engine on the default model against llama.cpp: next-token distributions of every position of twenty texts. The
// reference is llama.cpp on a copy of the model expanded to F32, with F32 KV (tests/golden/tools).

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/golden/teacher_forcing.h"
#include "tests/support/test_model.h"

namespace millrace {
namespace {

// A model file as if every tensor of it had been stored in F32.
class ExpandedFile final : public model::GgufFile {
 public:
  explicit ExpandedFile(std::shared_ptr<const model::GgufFile> file) : file_(std::move(file)) {
    for (model::Tensor tensor : file_->tensors()) {
      tensor.type = model::TensorType::kF32;
      tensors_.push_back(std::move(tensor));
    }
  }

  const std::string& path() const override { return file_->path(); }
  uint64_t file_bytes() const override { return file_->file_bytes(); }
  const std::map<std::string, model::MetadataValue>& metadata() const override { return file_->metadata(); }
  const std::vector<model::Tensor>& tensors() const override { return tensors_; }
  const model::Tensor* Find(std::string_view name) const override {
    for (const model::Tensor& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  Status ReadRows(const model::Tensor& tensor, uint64_t first_row, uint64_t row_count,
                  std::span<std::byte> out) const override {
    const model::Tensor* stored = file_->Find(tensor.name);
    if (stored == nullptr) return InvalidArgument("no tensor '" + tensor.name + "'");
    std::vector<std::byte> raw(row_count * stored->row_bytes());
    MR_RETURN_IF_ERROR(file_->ReadRows(*stored, first_row, row_count, raw));
    auto* floats = reinterpret_cast<float*>(out.data());
    for (uint64_t r = 0; r < row_count; ++r) {
      model::DequantizeRow(stored->type, raw.data() + r * stored->row_bytes(), stored->cols, floats + r * stored->cols);
    }
    return OkStatus();
  }
  StatusOr<uint64_t> Uint(std::string_view key) const override { return file_->Uint(key); }
  StatusOr<double> Float(std::string_view key) const override { return file_->Float(key); }
  StatusOr<std::string> String(std::string_view key) const override { return file_->String(key); }
  Status CheckUnchanged() const override { return file_->CheckUnchanged(); }

 private:
  std::shared_ptr<const model::GgufFile> file_;
  std::vector<model::Tensor> tensors_;
};

struct Best {
  int32_t token;
  double log_probability;
};

struct Golden {
  double quantised_kl = 0;
  double quantised_top1 = 0;
  std::vector<std::vector<Best>> positions;
};

Golden ReadGolden(const std::string& path) {
  Golden golden;
  std::ifstream in(path);
  std::string word;
  in >> word >> golden.quantised_kl >> word >> golden.quantised_top1;
  std::getline(in, word);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    auto& best = golden.positions.emplace_back();
    for (Best b{}; words >> b.token >> b.log_probability;) best.push_back(b);
  }
  return golden;
}

double LogSumExp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - largest);
  return largest + std::log(sum);
}

// KL divergence over the reference's best tokens and one bucket of all others: a lower bound of the whole.
double Divergence(const std::vector<Best>& reference, std::span<const float> logits) {
  const double normalizer = LogSumExp(logits);
  double divergence = 0;
  double rest_p = 1;
  double rest_q = 1;
  for (const Best& best : reference) {
    const double p = std::exp(best.log_probability);
    const double log_q = logits[static_cast<size_t>(best.token)] - normalizer;
    divergence += p * (best.log_probability - log_q);
    rest_p -= p;
    rest_q -= std::exp(log_q);
  }
  rest_p = std::max(rest_p, 1e-12);
  rest_q = std::max(rest_q, 1e-12);
  return divergence + rest_p * std::log(rest_p / rest_q);
}

struct Agreement {
  double mean_kl = 0;
  double top1 = 0;
};

class LogitsGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = test::TestModelPath();
    if (path.empty()) GTEST_SKIP() << "the default model is not on this machine";
    const auto file = model::GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    file_ = *file;
    texts_ = test::ReadTokenLines(test::SourceDir() + "/tests/golden/data/texts.txt");
    golden_ = ReadGolden(test::SourceDir() + "/tests/golden/data/logits_smollm2.txt");
    for (const auto& text : texts_) {
      starts_.push_back(count_);
      count_ += text.size();
    }
    ASSERT_EQ(golden_.positions.size(), count_);
    ASSERT_GT(count_, 1000U);
  }

  Agreement Run(const model::GgufFile& file, const std::string& digest) {
    engine::CpuOptions options;
    options.use_cache = false;
    options.context_tokens = 512;
    options.kv_type = kv::ElementType::kF32;
    options.kv_blocks = test::BlocksOfTexts(texts_);
    const auto backend = engine::OpenCpuBackend(options, file, digest);
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    if (!backend.ok()) return {};
    Agreement agreement;
    const Status run = test::TeacherForce(**backend, texts_, [&](size_t text, size_t position, auto logits) {
      const std::vector<Best>& best = golden_.positions[starts_[text] + position];
      agreement.mean_kl += Divergence(best, logits);
      const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
      agreement.top1 += top == best[0].token ? 1 : 0;
    });
    EXPECT_TRUE(run.ok()) << run.ToString();
    agreement.mean_kl /= static_cast<double>(count_);
    agreement.top1 /= static_cast<double>(count_);
    std::printf("%s: mean KL %.3e, top-1 %.3f %%\n", digest.c_str(), agreement.mean_kl, 100 * agreement.top1);
    return agreement;
  }

  std::shared_ptr<const model::GgufFile> file_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<size_t> starts_;
  size_t count_ = 0;
  Golden golden_;
};

TEST_F(LogitsGolden, F32CopyEqualsLlamaCpp) {
  const Agreement agreement = Run(ExpandedFile(file_), "f32");
  EXPECT_LT(agreement.mean_kl, 1e-5);
  EXPECT_GE(agreement.top1, 0.999);
}

// Activations of 16 bits leave nothing of llama.cpp's own distance from F32 (golden_.quantised_kl, about 2e-3).
TEST_F(LogitsGolden, QuantisedFileIsFarCloserToF32ThanLlamaCpp) {
  const Agreement agreement = Run(*file_, "quantised");
  EXPECT_LE(agreement.mean_kl, 0.001 * golden_.quantised_kl);
  EXPECT_GE(agreement.top1, 0.998);
}

}  // namespace
}  // namespace millrace
