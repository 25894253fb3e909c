#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "common/base/bounded_queue.h"
#include "common/base/crc32c.h"
#include "common/base/metrics.h"
#include "common/base/random.h"
#include "common/base/status.h"

namespace millrace {
namespace {

TEST(StatusTest, CarriesCodeReasonParamAndAdvice) {
  const Status status =
      Status(Code::kUnavailable, Reason::kOverloaded, "queue full").WithRetryAfterMs(250).WithParam("messages[0]");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "UNAVAILABLE(overloaded) [messages[0]]: queue full");
  const Status annotated = status.Annotate("prefill-0");
  EXPECT_EQ(annotated.message(), "prefill-0: queue full");
  EXPECT_EQ(annotated.reason(), Reason::kOverloaded);
  EXPECT_EQ(annotated.retry_after_ms(), 250u);
  EXPECT_TRUE(OkStatus().Annotate("x").ok());
}

TEST(StatusTest, ErrnoOfAFullDiskSaysNoSpace) {
  EXPECT_EQ(ErrnoStatus(ENOSPC, "write /x").reason(), Reason::kNoSpace);
  EXPECT_EQ(ErrnoStatus(ENOENT, "open /x").code(), Code::kNotFound);
}

StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("odd");
  return value / 2;
}
StatusOr<int> Quarter(int value) {
  MR_ASSIGN_OR_RETURN(const int half, Half(value));
  MR_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

TEST(StatusOrTest, MacrosReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
}

TEST(Crc32cTest, MeetsPublishedVectors) {
  // RFC 3720 appendix B.4.
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62A8AB43u);
  EXPECT_EQ(Crc32c("", 0), 0u);
}

TEST(Crc32cTest, PiecesGiveTheSameAsTheWhole) {
  Rng rng(1);
  std::string data(20000, '\0');
  for (char& c : data) c = static_cast<char>(rng.Next32());
  // Bit by bit from the definition: an implementation of its own.
  uint32_t reference = 0xFFFFFFFF;
  for (const char c : data) {
    reference ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) reference = (reference >> 1) ^ (0x82F63B78 & (0 - (reference & 1)));
  }
  EXPECT_EQ(Crc32c(data.data(), data.size()), ~reference);
  for (int round = 0; round < 200; ++round) {
    const size_t cut = rng.Below(data.size() + 1);
    EXPECT_EQ(Crc32c(data.data() + cut, data.size() - cut, Crc32c(data.data(), cut)), ~reference);
  }
}

TEST(PhiloxTest, MeetsPublishedVectors) {
  // Random123 kat_vectors, philox4x32 10 rounds.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RngTest, BelowIsInRangeAndHitsEveryValue) {
  Rng rng(7);
  std::vector<int> hits(10);
  for (int i = 0; i < 10000; ++i) ++hits.at(rng.Below(10));
  for (const int count : hits) EXPECT_NEAR(count, 1000, 150);
}

TEST(BoundedQueueTest, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(4));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, CloseWakesABlockedPopper) {
  BoundedQueue<int> queue(1);
  std::thread popper([&] { EXPECT_EQ(queue.Pop(), std::nullopt); });
  queue.Close();
  popper.join();
}

TEST(MemoryMetricsTest, CountsFromManyThreads) {
  const auto metrics = MakeMemoryMetrics();
  Counter& counter = metrics->AddCounter("c", "");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) counter.Add();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.Value(), 4000);
  EXPECT_EQ(metrics->AddCounter("c", "").Value(), 4000);
}

}  // namespace
}  // namespace millrace
