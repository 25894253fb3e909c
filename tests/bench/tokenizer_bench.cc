// Tokenizer on the default model's vocabulary (MILLRACE_TEST_MODEL or the cache): prompts of text, and one letter
// repeated, which a quadratic merge would not survive.

#include <benchmark/benchmark.h>

#include <fstream>

#include "common/model/recipe_from_gguf.h"
#include "tests/support/test_model.h"

namespace millrace {
namespace {

std::shared_ptr<const recipe::Tokenizer> LoadTokenizer() {
  const auto file = model::GgufFile::Open(test::TestModelPath());
  if (!file.ok()) return nullptr;
  const auto recipe = model::RecipeFromGguf(**file);
  return recipe.ok() ? (*recipe)->tokenizer() : nullptr;
}

const std::shared_ptr<const recipe::Tokenizer>& SharedTokenizer() {
  static const auto tokenizer = LoadTokenizer();
  return tokenizer;
}

void Encode(benchmark::State& state, const std::string& text) {
  const auto& tokenizer = SharedTokenizer();
  if (tokenizer == nullptr) return state.SkipWithError("the default model is not on this machine");
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->Encode(text, recipe::SpecialText::kIsText));
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
}

// Varied text: the reference texts' words in an order that repeats no long run.
std::string Prose(size_t bytes) {
  const auto& tokenizer = SharedTokenizer();
  std::string text;
  if (tokenizer == nullptr) return text;
  for (uint32_t i = 0; text.size() < bytes; ++i) {
    text += tokenizer->TextBytes(static_cast<recipe::TokenId>(300 + i * 7919U % 40000U));
    if (i % 3 == 0) text += ' ';
    if (i % 97 == 0) text += ".\n";
  }
  return text;
}

void BM_Prose(benchmark::State& state) { Encode(state, Prose(static_cast<size_t>(state.range(0)))); }
BENCHMARK(BM_Prose)->Arg(2'000)->Arg(200'000)->Unit(benchmark::kMillisecond);

void BM_OneLetter(benchmark::State& state) { Encode(state, std::string(static_cast<size_t>(state.range(0)), 'a')); }
BENCHMARK(BM_OneLetter)->Arg(200'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void BM_Load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(LoadTokenizer());
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
