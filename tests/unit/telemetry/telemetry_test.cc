#include <gmock/gmock.h>

#include "common/telemetry/log_sink.h"
#include "common/telemetry/prometheus_metrics.h"

namespace millrace::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PrometheusMetricsTest, EveryMetricExistsAtZeroFromTheStart) {
  PrometheusMetrics metrics;
  metrics.AddCounter("millrace_test_requests_total", "Requests.", {{"status", "ok"}});
  metrics.AddGauge("millrace_test_blocks", "Blocks.");
  metrics.AddHistogram("millrace_test_ttft_seconds", "TTFT.", {0.1, 1});
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("millrace_test_requests_total{status=\"ok\"} 0"));
  EXPECT_THAT(text, HasSubstr("millrace_test_blocks 0"));
  EXPECT_THAT(text, HasSubstr("millrace_test_ttft_seconds_count 0"));
}

TEST(PrometheusMetricsTest, SameNameAndLabelsGiveTheSameMetric) {
  PrometheusMetrics metrics;
  metrics.AddCounter("millrace_test_total", "T.", {{"a", "1"}}).Add(2);
  metrics.AddCounter("millrace_test_total", "T.", {{"a", "1"}}).Add(3);
  metrics.AddCounter("millrace_test_total", "T.", {{"a", "2"}}).Add();
  EXPECT_THAT(metrics.Serialize(), HasSubstr("millrace_test_total{a=\"1\"} 5"));
  EXPECT_THAT(metrics.Serialize(), HasSubstr("millrace_test_total{a=\"2\"} 1"));
}

TEST(LogSinkTest, JsonLinesAreOneObjectWithEscapes) {
  const LogField fields[] = {{"request_id", "a\"b\n"}, {"tokens", 3}};
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, LogLevel::kWarning, "p", 1500, "done", fields, 2),
            "{\"time\":\"1970-01-01T00:00:01.500Z\",\"level\":\"warning\",\"program\":\"p\",\"event\":\"done\","
            "\"request_id\":\"a\\\"b\\u000a\",\"tokens\":3}\n");
}

TEST(LogSinkTest, TextLinesQuoteWhatHasSpaces) {
  const LogField fields[] = {{"error", "two words"}, {"n", 1}};
  EXPECT_EQ(FormatLogLine(LogFormat::kText, LogLevel::kInfo, "p", 0, "x", fields, 2),
            "1970-01-01T00:00:00.000Z info p x error=\"two words\" n=1\n");
}

}  // namespace
}  // namespace millrace::telemetry
