// Packing, the cache of packed weights, digests, threads and rotary angles.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/engine/cpu/packing.h"
#include "common/engine/cpu/rope_angles.h"
#include "common/engine/cpu/thread_team.h"
#include "common/engine/cpu/weights.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/tiny_model.h"

namespace millrace::engine::cpu {
namespace {

namespace fs = std::filesystem;
using model::TensorType;

class PackingTest : public testing::TestWithParam<TensorType> {};

TEST_P(PackingTest, RowsComeBackAsTheFileDefinesThem) {
  const uint32_t rows = 37, cols = 2304;
  const model::Tensor tensor{.name = "m", .type = GetParam(), .cols = cols, .rows = rows};
  const TensorShape shape = *ShapeFor(tensor);
  const std::string bytes = support::RandomRows(GetParam(), rows, cols, 3);
  const auto source = std::as_bytes(std::span(bytes));
  std::vector<std::byte> packed(shape.bytes());
  PackRows(shape, source.first(32 * tensor.row_bytes()), 0, 32, packed.data());
  PackRows(shape, source.subspan(32 * tensor.row_bytes()), 32, 5, packed.data());
  std::vector<float> want(cols), got(cols);
  for (uint32_t row = 0; row < rows; ++row) {
    model::DequantizeRow(GetParam(), source.data() + row * tensor.row_bytes(), cols, want.data());
    UnpackRow(shape, packed.data(), row, got.data());
    ASSERT_EQ(std::memcmp(want.data(), got.data(), cols * sizeof(float)), 0) << "row " << row;
  }
  if (shape.storage != Storage::kRaw) return;
  std::vector<float> panel(size_t{cols} * kPanelRows), scratch(cols);
  ExpandRawPanel(shape, packed.data(), 2, scratch.data(), panel.data());
  UnpackRow(shape, packed.data(), 33, got.data());
  for (uint32_t k = 0; k < cols; ++k) {
    EXPECT_EQ(panel[k * kPanelRows + 1], got[k]);
    EXPECT_EQ(panel[k * kPanelRows + 5], 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, PackingTest,
                         testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                         TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,
                                         TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K));

class WeightCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "millrace_cache_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    for (const model::Tensor& tensor : model_->tensors()) names_.push_back(tensor.name);
  }
  void TearDown() override {
    chmod(dir_.c_str(), 0700);
    fs::remove_all(dir_);
  }

  // How many times weights were packed while loading.
  int PackedDuringLoad(const std::string& dir) {
    int packed = 0;
    StatusOr<Weights> weights = LoadWeights(
        *model_, names_, {"digest", dir, [&](uint64_t done, uint64_t total) { packed += done == total ? 1 : 0; }});
    EXPECT_TRUE(weights.ok()) << weights.status().ToString();
    shared_ = weights->shared();
    const PackedTensor* tensor = weights->Find("blk.1.ffn_down.weight");
    std::vector<float> row(tensor->shape.cols);
    UnpackRow(tensor->shape, tensor->data, 9, row.data());
    if (row_.empty()) row_ = row;
    EXPECT_EQ(row, row_);
    return packed;
  }

  // Made writable.
  std::string CacheFile() const {
    std::string found;
    for (const auto& entry : fs::directory_iterator(dir_)) {
      EXPECT_TRUE(found.empty()) << "more than one file";
      found = entry.path();
    }
    chmod(found.c_str(), 0600);
    return found;
  }

  const test::TemporaryFile file_{support::TinyModelBytes({})};
  const std::shared_ptr<const model::GgufFile> model_ = *model::GgufFile::Open(file_.path());
  std::vector<std::string> names_;
  std::string dir_;
  std::vector<float> row_;
  bool shared_ = false;
};

TEST_F(WeightCacheTest, PacksOnceAndMapsAfterwards) {
  EXPECT_EQ(PackedDuringLoad(dir_ + "/made/here"), 1);
  EXPECT_TRUE(shared_);
  EXPECT_EQ(PackedDuringLoad(dir_ + "/made/here"), 0);
  EXPECT_TRUE(shared_);
}

TEST_F(WeightCacheTest, DamagedFileIsRebuilt) {
  EXPECT_EQ(PackedDuringLoad(dir_), 1);
  const auto size = fs::file_size(CacheFile());
  for (uint64_t at : {uint64_t{3}, uint64_t{20}, uint64_t{200}, size - 40000}) {
    std::fstream file(CacheFile(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ 0x10));
    file.close();
    EXPECT_EQ(PackedDuringLoad(dir_), 1) << "byte " << at;
    EXPECT_EQ(PackedDuringLoad(dir_), 0);
  }
}

TEST_F(WeightCacheTest, ShortOrLongFileIsRebuilt) {
  EXPECT_EQ(PackedDuringLoad(dir_), 1);
  const auto size = fs::file_size(CacheFile());
  for (uint64_t bytes : {uint64_t{0}, uint64_t{17}, uint64_t{60}, size - 1, size + 1}) {
    fs::resize_file(CacheFile(), bytes);
    EXPECT_EQ(PackedDuringLoad(dir_), 1) << bytes;
    EXPECT_EQ(PackedDuringLoad(dir_), 0);
  }
}

// What a process does when its mapped weights shrink under it; the damaged file is made again by the next.
TEST_F(WeightCacheTest, MappedFileThatShrinksIsAnErrorAndNotASigbus) {
  EXPECT_EQ(PackedDuringLoad(dir_), 1);
  const std::string path = CacheFile();
  const auto read_after_shrinking = [&] {
    const StatusOr<Weights> weights = LoadWeights(*model_, names_, {"digest", dir_, nullptr});
    fs::resize_file(path, 100);
    const PackedTensor* tensor = weights->Find("blk.1.ffn_down.weight");
    std::vector<float> row(tensor->shape.cols);
    UnpackRow(tensor->shape, tensor->data, 9, row.data());
  };
  EXPECT_EXIT(read_after_shrinking(), testing::ExitedWithCode(kMappedFileLostExit),
              "mapped_file_lost path=" + path + " error=.*shrank");
  EXPECT_EQ(PackedDuringLoad(dir_), 1);
  EXPECT_EQ(PackedDuringLoad(dir_), 0);
}

TEST_F(WeightCacheTest, FileIsReadOnly) {
  EXPECT_EQ(PackedDuringLoad(dir_), 1);
  struct stat info {};
  ASSERT_EQ(stat(fs::directory_iterator(dir_)->path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400u);
}

TEST_F(WeightCacheTest, TemporaryFilesOfDeadProcessesAreRemoved) {
  std::ofstream(dir_ + "/digest.v1.weights.123.tmp") << "half";
  std::ofstream(dir_ + "/other.456.tmp") << "not ours";
  EXPECT_EQ(PackedDuringLoad(dir_), 1);
  EXPECT_FALSE(fs::exists(dir_ + "/digest.v1.weights.123.tmp"));
  EXPECT_TRUE(fs::exists(dir_ + "/other.456.tmp"));
}

TEST_F(WeightCacheTest, UnwritableFolderMeansPrivateMemory) {
  std::ofstream(dir_ + "/file") << "in the way";
  EXPECT_EQ(PackedDuringLoad(dir_ + "/file/cache"), 1);
  EXPECT_FALSE(shared_);
  EXPECT_EQ(PackedDuringLoad(""), 1);
  EXPECT_FALSE(shared_);
}

TEST_F(WeightCacheTest, ModelThatShrinksWhilePackedIsAnError) {
  const std::string bytes = support::TinyModelBytes({});
  const test::TemporaryFile file(bytes);
  const auto model = *model::GgufFile::Open(file.path());
  fs::resize_file(file.path(), bytes.size() / 2);
  const StatusOr<Weights> weights = LoadWeights(*model, names_, {"digest", dir_, nullptr});
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST(ThreadTeam, HandsOutEachItemOnceAndMeetsAtBarriers) {
  for (uint32_t threads : {1u, 2u, 5u}) {
    ThreadTeam team(threads);
    for (int run = 0; run < 50; ++run) {
      std::atomic<uint32_t> members{0};
      std::vector<uint32_t> counts(97, 0);
      team.Run([&](uint32_t) {
        members.fetch_add(1);
        for (uint32_t stage = 0; stage < 20; ++stage) {
          team.ForEach(97, [&](uint32_t item) {
            if (counts[item] == stage) ++counts[item];
          });
        }
      });
      EXPECT_EQ(members.load(), threads);
      EXPECT_EQ(counts, std::vector<uint32_t>(97, 20));
    }
  }
}

TEST(RopeAngles, MeetTheLibraryFunctions) {
  const std::vector<double> frequencies = RopeFrequencies(100000.0, 64, 2.0, std::vector<float>{4.0f});
  EXPECT_NEAR(frequencies[0], 0.125, 1e-15);
  std::vector<float> cos(32), sin(32);
  for (uint32_t position : {0u, 1u, 63u, 8191u, 131072u}) {
    RopeAngles(frequencies, position, cos.data(), sin.data());
    for (uint32_t i = 0; i < 32; ++i) {
      EXPECT_NEAR(frequencies[i], std::pow(100000.0, -2.0 * i / 64) / (i == 0 ? 8 : 2), 1e-15);
      EXPECT_NEAR(cos[i], std::cos(position * frequencies[i]), 6e-8);
      EXPECT_NEAR(sin[i], std::sin(position * frequencies[i]), 6e-8);
    }
  }
}

}  // namespace
}  // namespace millrace::engine::cpu
