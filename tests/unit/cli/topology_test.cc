#include "services/cli/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

namespace millrace::cli {
namespace {

using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;

// "--flag value" pairs, joined.
std::vector<std::string> Flags(const std::vector<std::string>& words) {
  std::vector<std::string> flags;
  for (size_t i = 0; i + 1 < words.size(); i += 2) flags.push_back(words[i] + " " + words[i + 1]);
  EXPECT_EQ(words.size() % 2, 0u);
  return flags;
}

ProcessPlan Find(const UpConfig& config, const std::string& name) {
  const auto plans = PlanProcesses(config);
  const auto plan = std::find_if(plans.begin(), plans.end(), [&](const ProcessPlan& p) { return p.name == name; });
  EXPECT_NE(plan, plans.end()) << name;
  return plan == plans.end() ? ProcessPlan{} : *plan;
}

TEST(PlanProcessesTest, TheDefaultClusterHasTenProcessesAndBalancersFirst) {
  const auto plans = PlanProcesses({});
  ASSERT_EQ(plans.size(), 10u);
  EXPECT_EQ(plans[0].name, "prefill-balancer-0");
  EXPECT_EQ(plans[0].stage, Stage::kFirst);
  EXPECT_EQ(plans.back().program, "millrace-gateway");
  EXPECT_EQ(plans.back().stage, Stage::kSecond);
}

TEST(ArgumentsTest, AWorkerGetsItsBalancersAndStores) {
  UpConfig config;
  config.model = "/m.gguf";
  config.threads = 3;
  config.kv_memory = config::Bytes{64 << 20};
  config.isa = "avx2";
  LaunchContext context;
  context.addresses = {{"prefill-balancer", {"127.0.0.1:1", "127.0.0.1:2"}},
                       {"decode-balancer", {"127.0.0.1:3"}},
                       {"store", {"127.0.0.1:4"}}};
  context.ready_file = "/r.json";
  context.ports.grpc = 99;
  const auto prefill = Flags(Arguments(Find(config, "prefill-1"), config, context));
  EXPECT_THAT(prefill,
              IsSupersetOf({"--balancers 127.0.0.1:1,127.0.0.1:2", "--decode-balancers 127.0.0.1:3",
                            "--stores 127.0.0.1:4", "--model /m.gguf", "--threads 3", "--isa avx2", "--kv-memory 64MiB",
                            "--name prefill-1", "--ready-file /r.json", "--port 99", "--host 127.0.0.1"}));
  const auto decode = Flags(Arguments(Find(config, "decode-0"), config, context));
  EXPECT_THAT(decode, IsSupersetOf({"--balancers 127.0.0.1:3", "--isa avx2", "--stores 127.0.0.1:4", "--port 99"}));
  EXPECT_THAT(decode, Not(Contains(testing::StartsWith("--decode-balancers"))));
}

TEST(ArgumentsTest, OnlyTheApiListensOnTheHostThatIsForOthers) {
  UpConfig config;
  config.host = "0.0.0.0";
  LaunchContext context;
  context.ports.http = 8080;
  const auto gateway = Flags(Arguments(Find(config, "gateway-0"), config, context));
  EXPECT_THAT(gateway, IsSupersetOf({"--api-host 0.0.0.0", "--host 127.0.0.1", "--port 8080", "--grpc-port 0"}));
  const auto store = Flags(Arguments(Find(config, "store-0"), config, context));
  EXPECT_THAT(store, Contains("--host 127.0.0.1"));
}

TEST(ArgumentsTest, AFullStoreOfOneMachineDropsOldBlocksRatherThanRefuseNewOnes) {
  UpConfig config;
  EXPECT_THAT(Flags(Arguments(Find(config, "store-0"), config, {})), Contains("--guarantee-hours 0"));
  config.store_guarantee_hours = 24;
  EXPECT_THAT(Flags(Arguments(Find(config, "store-0"), config, {})), Contains("--guarantee-hours 24"));
}

TEST(UpConfigTest, AWrongSizeOrPolicyIsNoticedBeforeAnyProcessStarts) {
  for (const auto& [flag, value, text] : {std::tuple("--kv-memory", "12parsecs", "is not a size"),
                                          {"--store-capacity", "big", "is not a size"},
                                          {"--policy", "nosuch", "is none of: round_robin, least_loaded"}}) {
    UpConfig config;
    config.model = "/m.gguf";
    config::Schema schema("up", "", "");
    config.Describe(schema);
    const auto result = schema.Parse({flag, value}, [](const char*) -> const char* { return nullptr; });
    ASSERT_FALSE(result.ok()) << flag;
    EXPECT_THAT(result.status().message(), testing::HasSubstr(text));
  }
}

TEST(UpConfigTest, AnOpenHostWithoutKeysIsRefusedBeforeAnyProcessStarts) {
  UpConfig config;
  config.host = "0.0.0.0";
  EXPECT_THAT(config.Validate().message(), testing::HasSubstr("--api-key-file, or --allow-anonymous"));
  config.allow_anonymous = true;
  EXPECT_TRUE(config.Validate().ok());
  config.allow_anonymous = false;
  config.api_key_file = "/keys";
  EXPECT_TRUE(config.Validate().ok());
}

TEST(ArgumentsTest, WhatIsNotSetIsLeftToTheProcess) {
  const UpConfig config;
  const auto decode = Flags(Arguments(Find(config, "decode-0"), config, {}));
  for (const char* flag : {"--threads", "--context", "--kv-memory", "--stores", "--served-model-name"}) {
    EXPECT_THAT(decode, Not(Contains(testing::StartsWith(flag)))) << flag;
  }
}

}  // namespace
}  // namespace millrace::cli
