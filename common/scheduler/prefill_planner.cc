#include "common/scheduler/prefill_planner.h"

#include <algorithm>
#include <numeric>

namespace millrace::scheduler {
namespace {

constexpr double kFasterWeight = 0.2;
constexpr double kSlowerWeight = 0.7;

}  // namespace

PrefillPlanner::PrefillPlanner(PrefillLimits limits) : limits_(limits) {
  limits_.least_tokens = std::max(1u, limits_.least_tokens);
  limits_.most_tokens = std::max(limits_.least_tokens, limits_.most_tokens);
  limits_.most_sequences = std::max(1u, limits_.most_sequences);
}

uint32_t PrefillPlanner::budget() const {
  double tokens = limits_.first_tokens;
  if (tokens_per_second_ > 0) tokens = tokens_per_second_ * ToSeconds(limits_.step_time);
  tokens = std::clamp(tokens, double{1} * limits_.least_tokens, double{1} * limits_.most_tokens);
  const auto whole = static_cast<uint32_t>(tokens);
  return whole - whole % limits_.least_tokens;
}

void PrefillPlanner::Measured(uint32_t tokens, Duration took) {
  if (tokens == 0 || took <= Duration(0)) return;
  const double rate = tokens / ToSeconds(took);
  if (tokens_per_second_ <= 0) {
    tokens_per_second_ = rate;
    return;
  }
  const double weight = rate < tokens_per_second_ ? kSlowerWeight : kFasterWeight;
  tokens_per_second_ += weight * (rate - tokens_per_second_);
}

std::vector<PrefillChunk> PrefillPlanner::Plan(std::span<const PrefillCandidate> candidates) const {
  if (candidates.empty()) return {};
  std::vector<uint32_t> granted(candidates.size(), 0);
  uint32_t left = budget();
  uint32_t sequences = 0;
  // Grants up to `most` tokens more; a chunk that does not end its prompt ends at a multiple of least_tokens.
  const auto grant = [&](size_t i, uint32_t most) {
    const PrefillCandidate& candidate = candidates[i];
    uint32_t tokens = std::min({candidate.remaining, granted[i] + most, granted[i] + left});
    if (tokens < candidate.remaining) {
      const uint32_t over = (candidate.done + tokens) % limits_.least_tokens;
      if (over < tokens) tokens -= over;
    }
    if (tokens <= granted[i] || (granted[i] == 0 && sequences == limits_.most_sequences)) return;
    if (granted[i] == 0) ++sequences;
    left -= tokens - granted[i];
    granted[i] = tokens;
  };
  grant(0, std::max(limits_.least_tokens, left / 2));
  std::vector<size_t> order(candidates.size() - 1);
  std::iota(order.begin(), order.end(), size_t{1});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return candidates[a].remaining < candidates[b].remaining; });
  for (const size_t i : order) {
    if (candidates[i].remaining <= left) grant(i, left);
  }
  grant(0, left);
  for (size_t i = 1; i < candidates.size() && left > 0; ++i) grant(i, left);
  std::vector<PrefillChunk> chunks;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (granted[i] > 0) chunks.push_back({candidates[i].id, granted[i]});
  }
  return chunks;
}

}  // namespace millrace::scheduler
