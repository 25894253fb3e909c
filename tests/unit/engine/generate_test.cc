#include "common/engine/generate.h"

#include <gtest/gtest.h>

#include "common/engine/cpu_backend.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/tiny_model.h"

namespace millrace::engine {
namespace {

std::unique_ptr<Backend> OpenTiny() {
  const test::TemporaryFile file(support::TinyModelBytes({}));
  CpuOptions options{.model_path = file.path(), .threads = 1};
  options.kv_blocks = 4;
  options.use_cache = false;
  return *OpenCpuBackend(options);
}

request::Generation Request() {
  request::Generation generation;
  for (int32_t i = 0; i < 70; ++i) generation.tokens.push_back(i * 5 % 301);
  generation.prompt_tokens = 70;
  generation.max_new_tokens = 20;
  generation.sampling.seed = 42;
  return generation;
}

TEST(Generate, ChunksDoNotChangeTheResult) {
  const auto backend = OpenTiny();
  const auto all = Generate(*backend, Request(), 0, nullptr);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->token_ids.size(), 20u);
  EXPECT_EQ(all->finish_reason, request::FinishReason::kLength);
  for (uint32_t chunk : {1u, 7u, 64u})
    EXPECT_EQ(Generate(*backend, Request(), chunk, nullptr)->token_ids, all->token_ids);
}

TEST(Generate, ReEntryContinuesTheSameStream) {
  const auto backend = OpenTiny();
  const auto all = Generate(*backend, Request(), 0, nullptr);
  request::Generation again = Request();
  again.tokens.insert(again.tokens.end(), all->token_ids.begin(), all->token_ids.begin() + 8);
  EXPECT_EQ(Generate(*backend, again, 16, nullptr)->token_ids, all->token_ids);
}

TEST(Generate, StopsAtAStopIdAndWhenTold) {
  const auto backend = OpenTiny();
  const auto all = Generate(*backend, Request(), 0, nullptr);
  request::Generation stopping = Request();
  stopping.stop_ids = {all->token_ids[5]};
  const auto stopped = Generate(*backend, stopping, 0, nullptr);
  EXPECT_EQ(stopped->finish_reason, request::FinishReason::kStop);
  EXPECT_LE(stopped->token_ids.size(), 6u);
  EXPECT_EQ(stopped->token_ids.back(), all->token_ids[5]);
  int seen = 0;
  const auto told = Generate(*backend, Request(), 0, [&](request::TokenId) { return ++seen < 3; });
  EXPECT_EQ(told->token_ids.size(), 3u);
  EXPECT_EQ(told->finish_reason, request::FinishReason::kStop);
}

TEST(Generate, RefusesWhatDoesNotFit) {
  const auto backend = OpenTiny();
  request::Generation generation = Request();
  generation.max_new_tokens = 500;
  EXPECT_EQ(Generate(*backend, generation, 0, nullptr).status().code(), Code::kInvalidArgument);
  generation.max_new_tokens = 200;  // more than four blocks
  EXPECT_EQ(Generate(*backend, generation, 0, nullptr).status().code(), Code::kInvalidArgument);
  generation.tokens.clear();
  EXPECT_EQ(Generate(*backend, generation, 0, nullptr).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace::engine
