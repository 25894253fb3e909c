#include "common/model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "common/base/random.h"
#include "tests/support/gguf_builder.h"

namespace millrace::model {
namespace {

using test::GgufBuilder;
using test::TemporaryFile;
using ::testing::HasSubstr;

std::string Floats(const std::vector<float>& values) {
  std::string raw;
  for (const float v : values) raw += GgufBuilder::Raw(v);
  return raw;
}

GgufBuilder Small() {
  GgufBuilder b;
  b.String("general.architecture", "llama")
      .Uint32("llama.block_count", 3)
      .Int32("signed", -7)
      .Float32("llama.rope.freq_base", 10000.0F)
      .Bool("flag", true)
      .Strings("tokenizer.ggml.tokens", {"a", "", "ccc"})
      .Numbers<int32_t>("types", {1, -1, 3})
      .Numbers<float>("scores", {0.5F, -2.0F})
      .Tensor("norm", 0, {4}, Floats({1, 2, 3, 4}))
      .Tensor("matrix", 0, {2, 3}, Floats({1, 2, 3, 4, 5, 6}))
      .Tensor("cube", 8, {32, 2, 2}, std::string(4 * 34, '\0'));
  return b;
}

StatusOr<std::shared_ptr<const GgufFile>> OpenBytes(const std::string& bytes) {
  const TemporaryFile file(bytes);
  return GgufFile::Open(file.path());
}

void ExpectRefused(const GgufBuilder& builder, Code code, const std::string& message) {
  const auto file = OpenBytes(builder.Bytes());
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), code) << file.status().ToString();
  EXPECT_THAT(file.status().message(), HasSubstr(message));
  EXPECT_THAT(file.status().message(), HasSubstr("/tmp/")) << "the file is not named";
}

TEST(GgufFile, ReadsMetadataAndTensors) {
  const TemporaryFile disk(Small().Bytes());
  const auto opened = GgufFile::Open(disk.path());
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const GgufFile& file = **opened;
  EXPECT_EQ(file.path(), disk.path());
  EXPECT_EQ(file.String("general.architecture").value(), "llama");
  EXPECT_EQ(file.Uint("llama.block_count").value(), 3U);
  EXPECT_EQ(file.Float("llama.rope.freq_base").value(), 10000.0);
  EXPECT_EQ(std::get<int64_t>(file.metadata().at("signed")), -7);
  EXPECT_TRUE(std::get<bool>(file.metadata().at("flag")));
  EXPECT_EQ(std::get<std::vector<std::string>>(file.metadata().at("tokenizer.ggml.tokens")),
            (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(file.metadata().at("types")), (std::vector<int64_t>{1, -1, 3}));
  EXPECT_EQ(std::get<std::vector<double>>(file.metadata().at("scores")), (std::vector<double>{0.5, -2.0}));

  ASSERT_EQ(file.tensors().size(), 3U);
  const Tensor* matrix = file.Find("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->cols, 2U);
  EXPECT_EQ(matrix->rows, 3U);
  EXPECT_EQ(matrix->row_bytes(), 8U);
  std::vector<float> rows(4);
  ASSERT_TRUE(file.ReadRows(*matrix, 1, 2, std::as_writable_bytes(std::span(rows))).ok());
  EXPECT_EQ(rows, (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(file.Find("cube")->rows, 4U);
  EXPECT_EQ(file.Find("cube")->bytes(), 4U * 34U);
  EXPECT_EQ(file.Find("absent"), nullptr);
  EXPECT_TRUE(file.CheckUnchanged().ok());
}

TEST(GgufFile, LookUpsNameTheKeyAndTheTypeFound) {
  const auto file = OpenBytes(Small().Bytes());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Uint("absent").status().code(), Code::kNotFound);
  EXPECT_THAT((*file)->Uint("absent").status().message(), HasSubstr("absent"));
  EXPECT_EQ((*file)->Uint("general.architecture").status().code(), Code::kInvalidArgument);
  EXPECT_THAT((*file)->Uint("general.architecture").status().message(), HasSubstr("it is a string"));
  EXPECT_EQ((*file)->Uint("signed").status().code(), Code::kInvalidArgument);
  EXPECT_EQ((*file)->Float("flag").status().code(), Code::kInvalidArgument);
  EXPECT_EQ((*file)->String("flag").status().code(), Code::kInvalidArgument);
}

TEST(GgufFile, RowsOutsideATensorAreRefused) {
  const auto file = OpenBytes(Small().Bytes());
  ASSERT_TRUE(file.ok());
  const Tensor* matrix = (*file)->Find("matrix");
  std::vector<std::byte> out(16);
  EXPECT_EQ((*file)->ReadRows(*matrix, 2, 2, out).code(), Code::kInvalidArgument);
  EXPECT_EQ((*file)->ReadRows(*matrix, ~uint64_t{0}, 2, out).code(), Code::kInvalidArgument);
  EXPECT_EQ((*file)->ReadRows(*matrix, 0, 1, out).code(), Code::kInvalidArgument);
  Tensor foreign = *matrix;
  foreign.offset += 1;
  EXPECT_EQ((*file)->ReadRows(foreign, 0, 2, out).code(), Code::kInvalidArgument);
}

TEST(GgufFile, MissingOrOddFiles) {
  EXPECT_EQ(GgufFile::Open("/nonexistent/model.gguf").status().code(), Code::kNotFound);
  EXPECT_EQ(GgufFile::Open("/tmp").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(OpenBytes("").status().code(), Code::kInvalidArgument);
  EXPECT_THAT(OpenBytes("<html>not found</html>").status().message(), HasSubstr("not a GGUF file"));
}

TEST(GgufFile, OpeningAFifoDoesNotHang) {
  const std::string path = testing::TempDir() + "gguf_fifo_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(GgufFile::Open(path).status().message(), HasSubstr("not a regular file"));
  unlink(path.c_str());
}

TEST(GgufFile, VersionsAndByteOrder) {
  EXPECT_TRUE(OpenBytes(Small().Version(2).Bytes()).ok());
  ExpectRefused(Small().Version(1), Code::kUnimplemented, "version 1");
  ExpectRefused(Small().Version(4), Code::kInvalidArgument, "version 4");
  ExpectRefused(Small().Version(0x03000000), Code::kInvalidArgument, "big-endian");
}

TEST(GgufFile, AbsurdCountsAreRefusedBeforeAllocation) {
  std::string bytes = Small().Bytes();
  const std::string huge = GgufBuilder::Raw(~uint64_t{0} / 2);
  std::string tensors = bytes;
  tensors.replace(8, 8, huge);
  EXPECT_THAT(OpenBytes(tensors).status().message(), HasSubstr("tensors"));
  std::string pairs = bytes;
  pairs.replace(16, 8, huge);
  EXPECT_THAT(OpenBytes(pairs).status().message(), HasSubstr("metadata pairs"));
  std::string key = bytes;
  key.replace(24, 8, huge);
  EXPECT_THAT(OpenBytes(key).status().message(), HasSubstr("metadata key"));

  ExpectRefused(GgufBuilder().Pair("text", 8, huge), Code::kInvalidArgument, "claims");
  ExpectRefused(GgufBuilder().Pair("list", 9, GgufBuilder::Raw(uint32_t{8}) + huge), Code::kInvalidArgument, "claims");
  ExpectRefused(GgufBuilder().Pair("list", 9, GgufBuilder::Raw(uint32_t{4}) + huge), Code::kInvalidArgument, "claims");
}

TEST(GgufFile, WrongMetadataIsNamed) {
  ExpectRefused(GgufBuilder().Uint32("k", 1).Uint32("k", 2), Code::kInvalidArgument, "'k' comes again");
  ExpectRefused(GgufBuilder().Pair("k", 13, "xxxxxxxx"), Code::kInvalidArgument, "value type 13");
  ExpectRefused(GgufBuilder().Pair("k", 7, "\2"), Code::kInvalidArgument, "bool of value 2");
  ExpectRefused(GgufBuilder().Pair("k", 9, GgufBuilder::Raw(uint32_t{99}) + GgufBuilder::Raw(uint64_t{0})),
                Code::kInvalidArgument, "value type 99");
  ExpectRefused(GgufBuilder().Pair("k", 9, GgufBuilder::Raw(uint32_t{9}) + GgufBuilder::Raw(uint64_t{0})),
                Code::kUnimplemented, "array of arrays");
  ExpectRefused(GgufBuilder().Uint32("general.alignment", 48), Code::kInvalidArgument, "power of two");
  ExpectRefused(GgufBuilder().Uint32("general.alignment", 0), Code::kInvalidArgument, "power of two");
}

TEST(GgufFile, SplitFilesAreNamed) {
  ExpectRefused(GgufBuilder().Uint32("split.count", 3), Code::kUnimplemented, "split.count 3");
  EXPECT_TRUE(OpenBytes(GgufBuilder().Uint32("split.count", 1).Bytes()).ok());
}

TEST(GgufFile, WrongTensorsAreNamed) {
  const std::string data(64, '\0');
  ExpectRefused(GgufBuilder().Tensor("t", 0, {}, data), Code::kInvalidArgument, "0 dimensions");
  ExpectRefused(GgufBuilder().Tensor("t", 0, {1, 1, 1, 1, 1}, data), Code::kInvalidArgument, "5 dimensions");
  ExpectRefused(GgufBuilder().Tensor("t", 0, {4, 0}, data), Code::kInvalidArgument, "size 0 in dimension 1");
  ExpectRefused(GgufBuilder().Tensor("t", 0, {uint64_t{1} << 40, uint64_t{1} << 40}, data), Code::kInvalidArgument,
                "in dimension 1");
  ExpectRefused(GgufBuilder().Tensor("t", 8, {33}, data), Code::kInvalidArgument, "not a multiple of the 32");
  ExpectRefused(GgufBuilder().Tensor("t", 0, {17}, data), Code::kInvalidArgument, "needs 68 bytes");
  ExpectRefused(GgufBuilder().Tensor("t", 0, {4}, data).TensorAt("t", 0, {4}, 32), Code::kInvalidArgument, "twice");
  ExpectRefused(GgufBuilder().Tensor("t", 0, {16}, data).TensorAt("u", 0, {4}, 32), Code::kInvalidArgument, "overlap");
  ExpectRefused(GgufBuilder().Tensor("t", 0, {4}, data).TensorAt("u", 0, {4}, 20), Code::kInvalidArgument,
                "not aligned");
  ExpectRefused(GgufBuilder().TensorAt("t", 0, {4}, ~uint64_t{0} - 31), Code::kInvalidArgument, "truncated");
  ExpectRefused(GgufBuilder().Tensor(std::string(65, 'n'), 0, {4}, data), Code::kInvalidArgument, "65 bytes");
}

TEST(GgufFile, UnknownTensorTypesAreNamedBesideThoseWeHave) {
  ExpectRefused(GgufBuilder().Tensor("t", 10, {256}, std::string(84, '\0')), Code::kUnimplemented, "Q2_K");
  ExpectRefused(GgufBuilder().Tensor("t", 777, {256}, ""), Code::kUnimplemented, "number 777");
  ExpectRefused(GgufBuilder().Tensor("t", 23, {256}, ""), Code::kUnimplemented,
                "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K");
}

TEST(GgufFile, LargerAlignment) {
  GgufBuilder b;
  b.Alignment(4096).Tensor("a", 0, {1}, Floats({1})).Tensor("b", 0, {1}, Floats({2}));
  const TemporaryFile disk(b.Bytes());
  const auto file = GgufFile::Open(disk.path());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->Find("b")->offset, 8192U);
  float value = 0;
  ASSERT_TRUE((*file)->ReadRows(*(*file)->Find("b"), 0, 1, std::as_writable_bytes(std::span(&value, 1))).ok());
  EXPECT_EQ(value, 2.0F);
}

TEST(GgufFile, ShrunkFileIsAnErrorNotASignal) {
  const TemporaryFile disk(Small().Bytes());
  const auto file = GgufFile::Open(disk.path());
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate(disk.path().c_str(), 100), 0);
  const Tensor* cube = (*file)->Find("cube");
  std::vector<std::byte> out(cube->bytes());
  const Status read = (*file)->ReadRows(*cube, 0, cube->rows, out);
  EXPECT_EQ(read.code(), Code::kFailedPrecondition) << read.ToString();
  EXPECT_THAT(read.message(), HasSubstr("became shorter"));
  const Status unchanged = (*file)->CheckUnchanged();
  EXPECT_EQ(unchanged.code(), Code::kFailedPrecondition);
  EXPECT_THAT(unchanged.message(), HasSubstr("changed size"));
}

TEST(GgufFile, ReplacedFileIsNoticedAndTheOldBytesStayReadable) {
  const TemporaryFile disk(Small().Bytes());
  const auto file = GgufFile::Open(disk.path());
  ASSERT_TRUE(file.ok());
  {
    const TemporaryFile other(Small().Uint32("more", 1).Bytes());
    std::filesystem::rename(other.path(), disk.path());
  }
  EXPECT_THAT((*file)->CheckUnchanged().message(), HasSubstr("replaced"));
  std::vector<float> rows(6);
  ASSERT_TRUE((*file)->ReadRows(*(*file)->Find("matrix"), 0, 3, std::as_writable_bytes(std::span(rows))).ok());
  EXPECT_EQ(rows, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  std::filesystem::remove(disk.path());
  EXPECT_EQ((*file)->CheckUnchanged().code(), Code::kFailedPrecondition);
}

// Reads all that a loader would read, so that a sanitizer sees each access.
void ReadEverything(const GgufFile& file) {
  for (const Tensor& tensor : file.tensors()) {
    std::vector<std::byte> raw(tensor.bytes());
    ASSERT_TRUE(file.ReadRows(tensor, 0, tensor.rows, raw).ok());
    std::vector<float> row(tensor.cols);
    for (uint64_t r = 0; r < tensor.rows; ++r) {
      DequantizeRow(tensor.type, raw.data() + r * tensor.row_bytes(), tensor.cols, row.data());
    }
  }
}

TEST(GgufFile, EveryTruncationIsRefusedWithAMessage) {
  const std::string whole = Small().Bytes();
  const TemporaryFile disk(whole);
  for (size_t length = 0; length < whole.size(); ++length) {
    disk.Rewrite(whole.substr(0, length));
    const auto file = GgufFile::Open(disk.path());
    ASSERT_FALSE(file.ok()) << length;
    EXPECT_EQ(file.status().code(), Code::kInvalidArgument) << length << ": " << file.status().ToString();
  }
}

TEST(GgufFile, RandomDamageNeverCrashes) {
  const std::string whole = Small().Bytes();
  const TemporaryFile disk(whole);
  Rng rng(20);
  static constexpr uint64_t kEdges[] = {0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, ~uint64_t{0}};
  int opened = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = whole;
    for (uint64_t edits = 1 + rng.Below(4); edits > 0; --edits) {
      const size_t at = rng.Below(bytes.size() - 8);
      if (rng.Below(2) == 0) {
        bytes[at] = static_cast<char>(rng.Next32());
      } else {
        const size_t width = size_t{1} << rng.Below(4);
        bytes.replace(at, width, GgufBuilder::Raw(kEdges[rng.Below(std::size(kEdges))]).substr(0, width));
      }
    }
    if (rng.Below(4) == 0) bytes.resize(rng.Below(bytes.size()));
    disk.Rewrite(bytes);
    const auto file = GgufFile::Open(disk.path());
    if (!file.ok()) {
      EXPECT_FALSE(file.status().message().empty());
      continue;
    }
    ++opened;
    ReadEverything(**file);
  }
  EXPECT_GT(opened, 100);  // harmless damage is part of the mix
}

}  // namespace
}  // namespace millrace::model
