#include "common/config/text_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace millrace::config {
namespace {

TEST(TextFileTest, ReadsAllOfIt) {
  const std::string path = std::filesystem::temp_directory_path() / ("millrace_text_" + std::to_string(getpid()));
  const std::string text = std::string(40000, 'x') + '\0' + "end\n";
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(*ReadTextFile(path), text);
  std::ofstream(path, std::ios::trunc).flush();
  EXPECT_EQ(*ReadTextFile(path), "");
  std::filesystem::remove(path);
  EXPECT_EQ(ReadTextFile(path).status().code(), Code::kNotFound);
}

TEST(TextFileTest, AReadThatFailsIsAnErrorThatNamesThePath) {
  const auto text = ReadTextFile("/");
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.status().message().find("reading /"), std::string::npos) << text.status().message();
}

}  // namespace
}  // namespace millrace::config
