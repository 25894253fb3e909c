#include "common/engine/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/telemetry/log_sink.h"

namespace millrace::engine {
namespace {

constexpr size_t kBytes = 64 << 10;

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / "millrace_mapped_XXXXXX").string();
    const int fd = mkstemp(path_.data());
    ASSERT_GE(fd, 0);
    std::filesystem::resize_file(path_, kBytes);
    begin_ = static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0));
    ASSERT_NE(begin_, MAP_FAILED);
    close(fd);
  }
  void TearDown() override {
    munmap(begin_, kBytes);
    std::filesystem::remove(path_);
  }
  void ReadAfterShrinking() {
    std::filesystem::resize_file(path_, 100);
    static_cast<void>(*const_cast<volatile std::byte*>(begin_ + kBytes - 1));
  }

  std::string path_;
  std::byte* begin_ = nullptr;
};

// A sanitizer makes an exit of a signal.
bool EndedAsBefore(int status) {
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != kMappedFileLostExit;
}

TEST_F(MappedFileTest, FileThatShrinksIsOneErrorInTheFormOfTheLog) {
  const auto read_in_threads = [&] {
    telemetry::InstallLogSink(telemetry::LogFormat::kJson, LogLevel::kInfo, "a-worker");
    const MappedFileWatch watch(begin_, kBytes, path_);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { ReadAfterShrinking(); });
    for (std::thread& thread : threads) thread.join();
  };
  EXPECT_EXIT(read_in_threads(), testing::ExitedWithCode(kMappedFileLostExit),
              "^\\{\"time\":\"2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{3}Z\","
              "\"level\":\"error\",\"program\":\"a-worker\",\"event\":\"mapped_file_lost\",\"path\":\"" +
                  path_ + "\",\"error\":\"the file shrank[^}]*\"\\}\n$");
}

TEST_F(MappedFileTest, OtherBusErrorsGoWhereTheyWentBefore) {
  const auto read_unwatched = [&] {
    std::optional<MappedFileWatch> watch(std::in_place, begin_, kBytes, path_);
    watch.reset();
    ReadAfterShrinking();
  };
  EXPECT_EXIT(read_unwatched(), EndedAsBefore, "");
  const auto be_sent_one = [&] {
    const MappedFileWatch watch(begin_, kBytes, path_);
    raise(SIGBUS);
    _exit(kMappedFileLostExit);
  };
  EXPECT_EXIT(be_sent_one(), EndedAsBefore, "");
}

TEST_F(MappedFileTest, MoreMappingsThanCanBeWatchedAreNoError) {
  std::vector<std::unique_ptr<MappedFileWatch>> watches;
  for (int i = 0; i < 20; ++i) watches.push_back(std::make_unique<MappedFileWatch>(begin_, kBytes, path_));
  watches.clear();
  const auto read_watched = [&] {
    const MappedFileWatch watch(begin_, kBytes, path_);
    ReadAfterShrinking();
  };
  EXPECT_EXIT(read_watched(), testing::ExitedWithCode(kMappedFileLostExit), "mapped_file_lost");
}

}  // namespace
}  // namespace millrace::engine
