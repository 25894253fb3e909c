#include "common/request/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "common/base/random.h"

namespace millrace::request {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// e^x for x <= 0 by operations that every machine rounds alike; 0 below -50.
double ExpOfNonPositive(double x) {
  if (!(x >= -50.0)) return 0.0;
  constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;
  constexpr double kInverseFactorials[] = {
      1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,      1.0 / 720,
      1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600};
  const auto exponent = static_cast<int64_t>(x * kLog2e - 0.5);
  const double r = x - static_cast<double>(exponent) * kLn2;
  double sum = 0;
  for (int k = 12; k >= 0; --k) sum = sum * r + kInverseFactorials[k];
  return sum * std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

void AddBias(const SamplingParams& params, std::vector<float>& logits) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (id >= 0 && static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] += bias;
  }
}

// Ids of `prompt` and `generated`, sorted, each with its count in `generated`.
std::vector<std::pair<TokenId, uint32_t>> CountIds(std::span<const TokenId> prompt,
                                                   std::span<const TokenId> generated) {
  std::vector<std::pair<TokenId, uint32_t>> counts;
  counts.reserve(prompt.size() + generated.size());
  for (TokenId id : prompt) counts.emplace_back(id, 0);
  for (TokenId id : generated) counts.emplace_back(id, 1);
  std::sort(counts.begin(), counts.end());
  size_t kept = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (kept > 0 && counts[kept - 1].first == counts[i].first) {
      counts[kept - 1].second += counts[i].second;
    } else {
      counts[kept++] = counts[i];
    }
  }
  counts.resize(kept);
  return counts;
}

void Penalise(const Generation& generation, std::span<const TokenId> generated, std::vector<float>& logits) {
  const SamplingParams& params = generation.sampling;
  if (params.presence_penalty == 0 && params.frequency_penalty == 0 && params.repetition_penalty == 1) return;
  const auto prompt =
      std::span(generation.tokens).first(std::min<size_t>(generation.prompt_tokens, generation.tokens.size()));
  for (const auto& [id, count] : CountIds(prompt, generated)) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(count);
    logit -= params.presence_penalty;
  }
}

void BanStopIds(const Generation& generation, std::span<const TokenId> generated, std::vector<float>& logits) {
  if (generated.size() >= generation.min_tokens) return;
  for (TokenId id : generation.stop_ids) {
    if (id >= 0 && static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] = kBanned;
  }
}

TokenId Greatest(const std::vector<float>& logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<TokenId>(best);
}

// The likelier first; of equals the lower id: a total order, so that every algorithm gives the same result.
struct Likelier {
  const std::vector<float>& logits;
  bool operator()(uint32_t a, uint32_t b) const { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; }
};

class Candidates {
 public:
  // Weights are e^((logit - greatest) / temperature).
  Candidates(SamplerScratch& scratch, float greatest, float temperature)
      : logits_(scratch.logits), order_(scratch.order), greatest_(greatest), temperature_(temperature) {
    order_.clear();
    for (uint32_t id = 0; id < logits_.size(); ++id) {
      if (Weight(id) > 0) order_.push_back(id);
    }
  }

  void KeepTop(uint32_t count) {
    if (count == 0) return;
    const size_t kept = std::min<size_t>(count, order_.size());
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(),
                      Likelier{logits_});
    order_.resize(kept);
  }

  // The likeliest whose weights first reach the share `p` of all.
  void KeepShare(float p) {
    if (p >= 1) return;
    const double wanted = Total() * static_cast<double>(p);
    const auto less_likely = [this](uint32_t a, uint32_t b) { return Likelier{logits_}(b, a); };
    std::make_heap(order_.begin(), order_.end(), less_likely);
    std::vector<uint32_t> kept;
    for (double sum = 0; !order_.empty() && (kept.empty() || sum < wanted);) {
      std::pop_heap(order_.begin(), order_.end(), less_likely);
      kept.push_back(order_.back());
      sum += Weight(order_.back());
      order_.pop_back();
    }
    order_ = std::move(kept);
  }

  void KeepAbove(float min_p) {
    if (min_p <= 0) return;
    const auto bound = static_cast<double>(min_p);  // the greatest weight is 1
    std::erase_if(order_, [&](uint32_t id) { return Weight(id) < bound; });
  }

  // `uniform` in [0, 1).
  TokenId Draw(double uniform) const {
    double left = Total() * uniform;
    for (uint32_t id : order_) {
      left -= Weight(id);
      if (left < 0) return static_cast<TokenId>(id);
    }
    return static_cast<TokenId>(order_.back());
  }

 private:
  double Weight(uint32_t id) const {
    return ExpOfNonPositive((static_cast<double>(logits_[id]) - static_cast<double>(greatest_)) /
                            static_cast<double>(temperature_));
  }
  double Total() const {
    double total = 0;
    for (uint32_t id : order_) total += Weight(id);
    return total;
  }

  const std::vector<float>& logits_;
  std::vector<uint32_t>& order_;
  const float greatest_;
  const float temperature_;
};

}  // namespace

TokenId Sample(std::span<const float> logits, const Generation& generation, std::span<const TokenId> generated,
               SamplerScratch& scratch) {
  const SamplingParams& params = generation.sampling;
  scratch.logits.assign(logits.begin(), logits.end());
  for (float& logit : scratch.logits) {
    if (!(logit <= std::numeric_limits<float>::max())) logit = kBanned;
  }
  AddBias(params, scratch.logits);
  Penalise(generation, generated, scratch.logits);
  BanStopIds(generation, generated, scratch.logits);
  const TokenId best = Greatest(scratch.logits);
  const float greatest = scratch.logits[static_cast<size_t>(best)];
  const bool greedy = !(params.temperature > 0) || params.top_k == 1 || !(params.top_p > 0) || greatest == kBanned;
  if (greedy) return best;
  Candidates candidates(scratch, greatest, params.temperature);
  candidates.KeepTop(params.top_k);
  candidates.KeepShare(params.top_p);
  candidates.KeepAbove(params.min_p);
  const uint64_t position = uint64_t{generation.prompt_tokens} + generated.size();
  constexpr uint32_t kChoice = 0;
  const auto bits = Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), kChoice, 0},
                               {static_cast<uint32_t>(params.seed), static_cast<uint32_t>(params.seed >> 32)});
  const uint64_t mantissa = ((uint64_t{bits[0]} << 32) | bits[1]) >> 11;
  return candidates.Draw(static_cast<double>(mantissa) * 0x1p-53);
}

}  // namespace millrace::request
