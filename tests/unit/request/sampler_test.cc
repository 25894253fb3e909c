#include "common/request/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace millrace::request {
namespace {

Generation Request(uint64_t seed = 1) {
  Generation generation;
  generation.tokens = {0, 1};
  generation.prompt_tokens = 2;
  generation.max_new_tokens = 100;
  generation.sampling.seed = seed;
  return generation;
}

// How often each id is drawn at `draws` positions.
std::vector<int> Draw(const std::vector<float>& logits, const Generation& generation, int draws) {
  std::vector<int> counts(logits.size());
  std::vector<TokenId> generated;
  SamplerScratch scratch;
  Generation plain = generation;
  for (int i = 0; i < draws; ++i) {
    plain.sampling.seed = generation.sampling.seed + static_cast<uint64_t>(i);
    ++counts[static_cast<size_t>(Sample(logits, plain, generated, scratch))];
  }
  return counts;
}

TokenId Pick(const std::vector<float>& logits, const Generation& generation,
             const std::vector<TokenId>& generated = {}) {
  SamplerScratch scratch;
  return Sample(logits, generation, generated, scratch);
}

// Chi-square of the counts against softmax(logits) over `kept`.
double ChiSquare(const std::vector<int>& counts, const std::vector<float>& logits, const std::vector<size_t>& kept) {
  double total = 0, draws = 0, chi = 0;
  for (size_t id : kept) total += std::exp(double{logits[id]});
  for (int count : counts) draws += count;
  for (size_t id : kept) {
    const double want = draws * std::exp(double{logits[id]}) / total;
    chi += (counts[id] - want) * (counts[id] - want) / want;
  }
  return chi;
}

TEST(Sampler, GreedyIsTheArgmaxAndTiesGoToTheLowestId) {
  for (int kind = 0; kind < 3; ++kind) {
    Generation generation = Request();
    if (kind == 0) generation.sampling.temperature = 0;
    if (kind == 1) generation.sampling.top_k = 1;
    if (kind == 2) generation.sampling.top_p = 0;
    EXPECT_EQ(Pick({0, 3, 5, 5, 1}, generation), 2);
    EXPECT_EQ(Pick({-7, -7, -8}, generation), 0);
  }
}

TEST(Sampler, FollowsTheDistribution) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -3.0f};
  const auto counts = Draw(logits, Request(1000), 20000);
  EXPECT_LT(ChiSquare(counts, logits, {0, 1, 2, 3, 4, 5}), 20.5);  // 5 degrees of freedom, p = 0.001
}

TEST(Sampler, TemperatureSharpens) {
  std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  Generation generation = Request(7);
  generation.sampling.temperature = 0.5f;
  const auto counts = Draw(logits, generation, 20000);
  for (float& logit : logits) logit *= 2;
  EXPECT_LT(ChiSquare(counts, logits, {0, 1, 2}), 13.8);
}

TEST(Sampler, TopKTopPAndMinPKeepTheLikeliest) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.1f), std::log(0.3f), std::log(0.2f)};
  Generation generation = Request(3);
  generation.sampling.top_k = 2;
  EXPECT_LT(ChiSquare(Draw(logits, generation, 5000), logits, {0, 2}), 10.8);
  EXPECT_EQ(Draw(logits, generation, 5000)[1] + Draw(logits, generation, 5000)[3], 0);
  generation.sampling.top_k = 0;
  generation.sampling.top_p = 0.75f;  // 0.4 + 0.3 < 0.75 <= 0.9
  EXPECT_EQ(Draw(logits, generation, 5000)[1], 0);
  EXPECT_LT(ChiSquare(Draw(logits, generation, 5000), logits, {0, 2, 3}), 13.8);
  generation.sampling.top_p = 1;
  generation.sampling.min_p = 0.6f;
  const auto counts = Draw(logits, generation, 5000);
  EXPECT_EQ(counts[1] + counts[3], 0);
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[2], 0);
}

TEST(Sampler, TopKOfEqualLogitsKeepsTheLowestIds) {
  Generation generation = Request(9);
  generation.sampling.top_k = 2;
  const auto counts = Draw({1, 1, 1, 1}, generation, 2000);
  EXPECT_EQ(counts[2] + counts[3], 0);
  EXPECT_GT(counts[0], 800);
  EXPECT_GT(counts[1], 800);
}

TEST(Sampler, SameSeedAndPositionGiveTheSameIdAndOthersDoNot) {
  std::vector<float> logits(1000, 0.0f);
  std::map<TokenId, int> seen;
  std::vector<TokenId> generated;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Pick(logits, Request(), generated), Pick(logits, Request(), generated));
    ++seen[Pick(logits, Request(), generated)];
    generated.push_back(5);
  }
  EXPECT_GT(seen.size(), 40u);
}

TEST(Sampler, LogitBiasMovesAndBans) {
  Generation generation = Request();
  generation.sampling.temperature = 0;
  generation.sampling.logit_bias = {{1, -100.0f}, {3, 2.5f}, {99, 5.0f}};
  EXPECT_EQ(Pick({0, 9, 2, 0}, generation), 3);
}

TEST(Sampler, PenaltiesCountGeneratedIdsAndRepetitionThePromptToo) {
  Generation generation = Request();
  generation.sampling.temperature = 0;
  generation.tokens = {0, 0, 0};
  generation.prompt_tokens = 3;
  generation.sampling.presence_penalty = 1;
  EXPECT_EQ(Pick({5, 4.5f, 0}, generation), 0) << "the prompt is not counted";
  EXPECT_EQ(Pick({5, 4.5f, 0}, generation, {0}), 1);
  generation.sampling.presence_penalty = 0;
  generation.sampling.frequency_penalty = 0.3f;
  EXPECT_EQ(Pick({5, 4.5f, 0}, generation, {0}), 0);
  EXPECT_EQ(Pick({5, 4.5f, 0}, generation, {0, 0}), 1);
  generation.sampling.frequency_penalty = 0;
  generation.sampling.repetition_penalty = 2;
  EXPECT_EQ(Pick({5, 2.6f, 0}, generation), 1);
  EXPECT_EQ(Pick({-2, -3, -5}, generation), 1) << "negative logits are multiplied";
}

TEST(Sampler, PenaltiesAreTheSameAfterAReEntry) {
  Generation first = Request(), again = Request();
  first.sampling.frequency_penalty = again.sampling.frequency_penalty = 0.5f;
  first.sampling.temperature = again.sampling.temperature = 0;
  again.tokens.insert(again.tokens.end(), {3, 3});
  EXPECT_EQ(Pick({0, 0, 0.7f, 1.5f}, first, {3, 3}), Pick({0, 0, 0.7f, 1.5f}, again, {3, 3}));
}

TEST(Sampler, StopIdsAreBannedBeforeMinTokens) {
  Generation generation = Request();
  generation.sampling.temperature = 0;
  generation.stop_ids = {1};
  generation.min_tokens = 2;
  EXPECT_EQ(Pick({0, 9, 2}, generation), 2);
  EXPECT_EQ(Pick({0, 9, 2}, generation, {2}), 2);
  EXPECT_EQ(Pick({0, 9, 2}, generation, {2, 2}), 1);
}

TEST(Sampler, LogitsThatAreNoNumbersAreNeverPicked) {
  const float nan = std::nanf(""), infinity = INFINITY;
  EXPECT_EQ(Pick({nan, -infinity, 0, nan}, Request()), 2);
  EXPECT_EQ(Pick({nan, nan}, Request()), 0);
}

}  // namespace
}  // namespace millrace::request
