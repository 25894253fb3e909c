#include "services/cli/load_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::cli {
namespace {

TEST(PlanLoadTest, TheSameSettingsGiveTheSameRequests) {
  const LoadConfig config{.requests = 20, .rate = 5, .length_spread = 0.5, .prefix_groups = 3};
  const auto a = PlanLoad(config);
  const auto b = PlanLoad(config);
  ASSERT_EQ(a.size(), 20u);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].prompt, b[i].prompt);
    EXPECT_EQ(a[i].arrival, b[i].arrival);
    if (i > 0) {
      EXPECT_GT(a[i].arrival, a[i - 1].arrival);
    }
  }
}

TEST(PlanLoadTest, ThePrefixShareIsSharedAndTheRestIsNot) {
  const auto plan = PlanLoad({.requests = 10, .prompt_tokens = 100, .prefix_share = 0.6});
  for (const PlannedRequest& request : plan) {
    ASSERT_EQ(request.prompt.size(), 100u);
    EXPECT_TRUE(std::equal(request.prompt.begin(), request.prompt.begin() + 60, plan[0].prompt.begin()));
  }
  EXPECT_FALSE(std::equal(plan[1].prompt.begin() + 60, plan[1].prompt.end(), plan[0].prompt.begin() + 60));
}

TEST(PlanLoadTest, ArrivalsComeAtTheRateOnAverage) {
  const auto plan = PlanLoad({.requests = 2000, .rate = 10, .prompt_tokens = 1});
  EXPECT_NEAR(ToSeconds(plan.back().arrival), 200.0, 15.0);
  EXPECT_EQ(PlanLoad({.requests = 3}).back().arrival, Duration(0));
}

TEST(PlanLoadTest, LengthsStayWithinTheSpreadAndAboveZero) {
  for (const PlannedRequest& request :
       PlanLoad({.requests = 500, .prompt_tokens = 100, .output_tokens = 1, .length_spread = 1})) {
    EXPECT_GE(request.prompt.size(), 1u);
    EXPECT_LE(request.prompt.size(), 200u);
    EXPECT_GE(request.output_tokens, 1u);
  }
}

TEST(SummarizeTest, PercentilesAreNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  const Distribution d = Summarize(values);
  EXPECT_DOUBLE_EQ(d.p50, 50);
  EXPECT_DOUBLE_EQ(d.p90, 90);
  EXPECT_DOUBLE_EQ(d.p99, 99);
  EXPECT_DOUBLE_EQ(d.max, 100);
  EXPECT_DOUBLE_EQ(d.mean, 50.5);
  EXPECT_DOUBLE_EQ(Summarize({7}).p99, 7);
  EXPECT_DOUBLE_EQ(Summarize({}).max, 0);
}

TEST(MakeReportTest, CountsTokensAndErrorsApart) {
  const Sample good{"", Milliseconds(100), Milliseconds(1100), {200, 11, 128}};
  const Sample bad{"HTTP 429: Too many", {}, Milliseconds(5), {}};
  const LoadReport report = MakeReport({good, bad, good}, Seconds(2));
  EXPECT_EQ(report.succeeded, 2u);
  EXPECT_EQ(report.errors.at("HTTP 429: Too many"), 1u);
  EXPECT_DOUBLE_EQ(report.tpot.p50, 0.1);
  EXPECT_DOUBLE_EQ(report.OutputTokensPerSecond(), 11);
  EXPECT_DOUBLE_EQ(report.HitRate(), 0.64);
  EXPECT_THAT(ReportJson(report), testing::HasSubstr("\"hit_rate\": 0.64"));
}

TEST(MakeReportTest, ErrorsOfRequestsAreSeenWithStatusMessageAndCount) {
  const Status busy = Status(Code::kResourceExhausted, "Too many requests.\nMore.").WithParam("HTTP 429");
  const Status cut = Status(Code::kInternal, "the worker died").WithParam("in the stream");
  const LoadReport report =
      MakeReport({{.error = ErrorLine(busy)}, {.error = ErrorLine(cut)}, {.error = ErrorLine(busy)}}, Seconds(1));
  EXPECT_THAT(ReportTable(report), testing::HasSubstr("errors     3\n"
                                                      "  2 x HTTP 429: Too many requests.\n"
                                                      "  1 x in the stream: the worker died\n"));
  EXPECT_THAT(ReportJson(report), testing::HasSubstr("\"HTTP 429: Too many requests.\": 2"));
}

TEST(ErrorLineTest, ALongMessageIsCutBetweenCharacters) {
  for (size_t shift = 0; shift < 3; ++shift) {
    std::string message(shift, 'x');
    for (int i = 0; i < 100; ++i) message += "\u20ac";
    const std::string line = ErrorLine(Unavailable(message));
    EXPECT_LE(line.size(), 163u);
    EXPECT_TRUE(line.ends_with("\u20ac...")) << line;
  }
}

}  // namespace
}  // namespace millrace::cli
