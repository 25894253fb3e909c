#include <algorithm>
#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/commands.h"
#include "services/cli/gateway_client.h"
#include "services/cli/load_plan.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchConfig {
  std::string url;
  std::string name = "default";
  std::string model;
  std::string api_key_file;
  uint32_t concurrency = 8;
  uint32_t max_in_flight = 256;
  bool json = false;
  LoadConfig load;

  void Describe(config::Schema& schema) {
    schema.Add("url", &url, {.help = "http://host:port of a gateway; empty = the local cluster's"});
    schema.Add("name", &name, {.help = "name of the local cluster"});
    schema.Add("served-model-name", &model, {.help = "model to load; empty = the first that the gateway lists"});
    schema.Add("api-key-file", &api_key_file, {.help = "file of API keys, one a line; the first is sent"});
    schema.Add("requests", &load.requests, {.help = "how many requests", .min = 1, .max = 1e6});
    schema.Add("concurrency", &concurrency, {.help = "closed loop: requests in flight", .min = 1, .max = 1024});
    schema.Add("rate", &load.rate,
               {.help = "open loop: requests a second that arrive at random times; 0 = closed loop", .min = 0});
    schema.Add("max-in-flight", &max_in_flight, {.help = "open loop: most requests in flight", .min = 1, .max = 4096});
    schema.Add("prompt-tokens", &load.prompt_tokens, {.help = "length of a prompt", .min = 1, .max = 1e6});
    schema.Add("output-tokens", &load.output_tokens, {.help = "length of an answer", .min = 1, .max = 1e6});
    schema.Add("length-spread", &load.length_spread,
               {.help = "lengths vary uniformly by this share of themselves", .min = 0, .max = 1});
    schema.Add("prefix-share", &load.prefix_share,
               {.help = "share of a prompt that it has in common with others", .min = 0, .max = 1});
    schema.Add("prefix-groups", &load.prefix_groups, {.help = "different common prefixes", .min = 1, .max = 1e5});
    schema.Add("vocabulary", &load.vocabulary, {.help = "prompt ids are drawn below it", .min = 1, .max = 1e7});
    schema.Add("seed", &load.seed, {.help = "of lengths, ids and arrivals"});
    schema.Add("json", &json, {.help = "print JSON"});
  }
};

std::string Body(const std::string& model, const PlannedRequest& request) {
  const Json body = {{"model", model},
                     {"prompt", request.prompt},
                     {"max_tokens", request.output_tokens},
                     {"temperature", 0},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  return body.dump();
}

// Sends one request; times count from `since`.
Sample Send(GatewayClient& client, const std::string& model, const PlannedRequest& request, TimePoint since) {
  Sample sample;
  const Clock& clock = SystemClock();
  const StatusOr<Answer> answer = client.Stream("/v1/completions", Body(model, request), [&](std::string_view) {
    if (sample.first_token == Duration(0)) sample.first_token = clock.Now() - since;
    return true;
  });
  sample.total = clock.Now() - since;
  if (!answer.ok()) {
    sample.error = ErrorLine(answer.status());
  } else if (!answer->usage) {
    sample.error = "HTTP 200: the answer has no usage";
  } else {
    sample.usage = *answer->usage;
    if (sample.first_token == Duration(0)) sample.first_token = sample.total;
  }
  return sample;
}

// In an open loop the time that a request waits for a free sender counts as the server's.
LoadReport RunLoad(const BenchConfig& config, const http::Endpoint& endpoint, const std::string& key) {
  const std::vector<PlannedRequest> plan = PlanLoad(config.load);
  const bool open_loop = config.load.rate > 0;
  const size_t senders = std::min<size_t>(open_loop ? config.max_in_flight : config.concurrency, plan.size());
  std::vector<Sample> samples(plan.size());
  std::atomic<size_t> next{0};
  const TimePoint start = SystemClock().Now();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < senders; ++i) {
    threads.emplace_back([&] {
      GatewayClient client(endpoint, key);
      for (size_t at; (at = next.fetch_add(1)) < plan.size();) {
        const TimePoint due = start + plan[at].arrival;
        if (const Duration early = due - SystemClock().Now(); early > Duration(0)) std::this_thread::sleep_for(early);
        samples[at] = Send(client, config.model, plan[at], open_loop ? due : SystemClock().Now());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return MakeReport(samples, SystemClock().Now() - start);
}

}  // namespace

int RunBench(const std::vector<std::string>& arguments) {
  BenchConfig config;
  config::Schema schema("millrace bench", "serve [flags]",
                        "Loads a running gateway over POST /v1/completions and prints time to first token, time per "
                        "output token, throughput, prefix hit rate and errors. Exit status 1 when a request failed.");
  schema.AllowPositional(1, "serve", "what to measure: completions of a running gateway");
  config.Describe(schema);
  const ParsedCommand parsed = ParseCommand(schema, arguments);
  if (parsed.over) return parsed.exit_status;
  if (parsed.positional != std::vector<std::string>{"serve"}) {
    std::fprintf(stderr, "millrace bench: say what to measure: millrace bench serve [flags]\n");
    return 2;
  }
  const StatusOr<http::Endpoint> endpoint = FindGateway(config.url, config.name);
  if (!endpoint.ok()) return Fail("bench", endpoint.status());
  const StatusOr<std::string> key = ReadApiKey(config.api_key_file);
  if (!key.ok()) return Fail("bench", key.status());
  StatusOr<std::string> model = GatewayClient(*endpoint, *key).ChooseModel(config.model);
  if (!model.ok()) return Fail("bench", model.status());
  config.model = *std::move(model);

  const LoadReport report = RunLoad(config, *endpoint, *key);
  std::fputs((config.json ? ReportJson(report) : ReportTable(report)).c_str(), stdout);
  return report.succeeded == report.requests ? 0 : 1;
}

}  // namespace millrace::cli
