#include "common/http/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace millrace::http {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> Read(std::string_view stream, size_t piece) {
  SseReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < stream.size(); at += piece) {
    EXPECT_TRUE(reader.Feed(stream.substr(at, piece), [&](std::string_view data) {
      events.emplace_back(data);
      return true;
    }));
  }
  return events;
}

TEST(SseReaderTest, ReadsEventsInPiecesOfAnySize) {
  const std::string stream =
      "data: one\n\ndata: {\"a\":1}\r\n\r\n: comment\n\nevent: x\ndata:two\ndata: lines\n\ndata: cut";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EXPECT_THAT(Read(stream, piece), ElementsAre("one", "{\"a\":1}", "two\nlines")) << piece;
  }
}

TEST(SseReaderTest, SkipsEventsWithoutDataAndKeepsEmptyData) {
  EXPECT_THAT(Read("event: ping\n\n", 100), IsEmpty());
  EXPECT_THAT(Read("data\n\ndata:\n\n", 100), ElementsAre("", ""));
}

TEST(SseReaderTest, StopsWhenTold) {
  SseReader reader;
  int calls = 0;
  const auto stop = [&](std::string_view) {
    ++calls;
    return false;
  };
  EXPECT_FALSE(reader.Feed("data: a\n\ndata: b\n\n", stop));
  EXPECT_FALSE(reader.Feed("data: c\n\n", stop));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace millrace::http
