#include "common/model/model_digest.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/gguf_builder.h"

namespace millrace::model {
namespace {

namespace fs = std::filesystem;

TEST(ModelDigest, IsRememberedUntilTheFileChanges) {
  std::string dir = fs::temp_directory_path() / "millrace_digest_XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const test::TemporaryFile file("abc");
  constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(*ModelDigest(file.path(), ""), kAbc);
  EXPECT_TRUE(fs::is_empty(dir));
  EXPECT_EQ(*ModelDigest(file.path(), dir), kAbc);
  ASSERT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 1);
  // A remembered digest is taken as it is; one that is damaged is not.
  const fs::path memo = fs::directory_iterator(dir)->path();
  std::string text;
  std::getline(std::ifstream(memo), text, '\0');
  const auto at = static_cast<std::streamoff>(text.find(kAbc));
  std::fstream(memo, std::ios::in | std::ios::out).seekp(at) << "c";
  EXPECT_EQ((*ModelDigest(file.path(), dir))[0], 'c');
  std::fstream(memo, std::ios::in | std::ios::out).seekp(at) << "x";
  EXPECT_EQ(*ModelDigest(file.path(), dir), kAbc);
  file.Rewrite("abcd");
  EXPECT_EQ(*ModelDigest(file.path(), dir), "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589");
  EXPECT_EQ(ModelDigest("/nonexistent", dir).status().code(), Code::kNotFound);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace millrace::model
