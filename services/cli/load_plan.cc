#include "services/cli/load_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/base/random.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kErrorLineBytes = 160;

uint32_t DrawLength(Rng& rng, uint32_t mean, double spread) {
  const double factor = 1.0 + spread * (2.0 * rng.Uniform() - 1.0);
  return std::max<uint32_t>(1, static_cast<uint32_t>(std::lround(mean * factor)));
}

std::vector<int32_t> DrawIds(Rng& rng, size_t count, uint32_t vocabulary) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.Below(vocabulary));
  return ids;
}

Json DistributionJson(const Distribution& d) {
  return {{"mean", d.mean}, {"p50", d.p50}, {"p90", d.p90}, {"p99", d.p99}, {"max", d.max}};
}

std::string Row(const char* name, const Distribution& d) {
  char line[128];
  std::snprintf(line, sizeof(line), "%-10s %9.1f %9.1f %9.1f %9.1f %9.1f\n", name, d.mean * 1e3, d.p50 * 1e3,
                d.p90 * 1e3, d.p99 * 1e3, d.max * 1e3);
  return line;
}

}  // namespace

std::vector<PlannedRequest> PlanLoad(const LoadConfig& config) {
  Rng rng(config.seed);
  const auto longest = static_cast<size_t>(std::ceil(config.prompt_tokens * (1.0 + config.length_spread)));
  std::vector<std::vector<int32_t>> prefixes;
  for (uint32_t i = 0; i < std::max(1u, config.prefix_groups); ++i) {
    prefixes.push_back(DrawIds(rng, longest, config.vocabulary));
  }
  std::vector<PlannedRequest> plan(config.requests);
  double arrival = 0;
  for (PlannedRequest& request : plan) {
    const uint32_t length = DrawLength(rng, config.prompt_tokens, config.length_spread);
    const std::vector<int32_t>& prefix = prefixes[rng.Below(prefixes.size())];
    const auto shared = std::min<size_t>(prefix.size(), static_cast<size_t>(length * config.prefix_share));
    request.prompt.assign(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(shared));
    const std::vector<int32_t> own = DrawIds(rng, length - shared, config.vocabulary);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.output_tokens = DrawLength(rng, config.output_tokens, config.length_spread);
    if (config.rate > 0) {
      arrival += -std::log(1.0 - rng.Uniform()) / config.rate;
      request.arrival = Duration(static_cast<int64_t>(arrival * 1e9));
    }
  }
  return plan;
}

std::string ErrorLine(const Status& status) {
  std::string line =
      (status.param().empty() ? std::string(CodeName(status.code())) : status.param()) + ": " + status.message();
  line.resize(std::min(line.size(), line.find_first_of("\r\n")));
  if (line.size() <= kErrorLineBytes) return line;
  size_t end = kErrorLineBytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // not within a character
  return line.substr(0, end) + "...";
}

Distribution Summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  // Nearest rank: the smallest value that at least the share q of all does not exceed.
  const auto at = [&](double q) {
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
    return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  return {sum / static_cast<double>(values.size()), at(0.5), at(0.9), at(0.99), values.back()};
}

LoadReport MakeReport(const std::vector<Sample>& samples, Duration elapsed) {
  LoadReport report;
  report.requests = static_cast<uint32_t>(samples.size());
  report.seconds = ToSeconds(elapsed);
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> total;
  for (const Sample& sample : samples) {
    if (!sample.error.empty()) {
      ++report.errors[sample.error];
      continue;
    }
    ++report.succeeded;
    report.tokens.prompt_tokens += sample.usage.prompt_tokens;
    report.tokens.completion_tokens += sample.usage.completion_tokens;
    report.tokens.cached_tokens += sample.usage.cached_tokens;
    ttft.push_back(ToSeconds(sample.first_token));
    total.push_back(ToSeconds(sample.total));
    if (sample.usage.completion_tokens > 1) {
      tpot.push_back(ToSeconds(sample.total - sample.first_token) /
                     static_cast<double>(sample.usage.completion_tokens - 1));
    }
  }
  report.ttft = Summarize(std::move(ttft));
  report.tpot = Summarize(std::move(tpot));
  report.total = Summarize(std::move(total));
  return report;
}

std::string ReportTable(const LoadReport& report) {
  std::string text = "ms              mean       p50       p90       p99       max\n";
  text += Row("ttft", report.ttft) + Row("tpot", report.tpot) + Row("total", report.total);
  char line[256];
  std::snprintf(line, sizeof(line),
                "requests   %u of %u in %.2f s: %.2f/s, %.1f output tokens/s, %.1f prompt tokens/s\n", report.succeeded,
                report.requests, report.seconds, report.RequestsPerSecond(), report.OutputTokensPerSecond(),
                report.PromptTokensPerSecond());
  text += line;
  std::snprintf(line, sizeof(line), "hit rate   %.1f %% of prompt tokens\n", report.HitRate() * 100);
  text += line;
  if (report.errors.empty()) return text + "errors     none\n";
  text += "errors     " + std::to_string(report.requests - report.succeeded) + "\n";
  for (const auto& [error, count] : report.errors) text += "  " + std::to_string(count) + " x " + error + "\n";
  return text;
}

std::string ReportJson(const LoadReport& report) {
  const Json json = {{"requests", report.requests},
                     {"succeeded", report.succeeded},
                     {"errors", report.errors},
                     {"duration_s", report.seconds},
                     {"requests_per_s", report.RequestsPerSecond()},
                     {"output_tokens_per_s", report.OutputTokensPerSecond()},
                     {"prompt_tokens_per_s", report.PromptTokensPerSecond()},
                     {"prompt_tokens", report.tokens.prompt_tokens},
                     {"output_tokens", report.tokens.completion_tokens},
                     {"cached_tokens", report.tokens.cached_tokens},
                     {"hit_rate", report.HitRate()},
                     {"ttft_s", DistributionJson(report.ttft)},
                     {"tpot_s", DistributionJson(report.tpot)},
                     {"total_s", DistributionJson(report.total)}};
  return json.dump(2) + "\n";
}

}  // namespace millrace::cli
