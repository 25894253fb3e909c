#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "services/cli/commands.h"
#include "services/cli/gateway_client.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

volatile sig_atomic_t g_interrupted = 0;
void OnInterrupt(int) { g_interrupted = 1; }

struct ChatConfig {
  std::string url;
  std::string name = "default";
  std::string model;
  std::string api_key_file;
  std::string system;
  std::string once;
  double temperature = 0.7;
  uint32_t max_tokens = 0;
  uint64_t seed = 0;

  void Describe(config::Schema& schema) {
    schema.Add("url", &url, {.help = "http://host:port of a gateway; empty = the local cluster's"});
    schema.Add("name", &name, {.help = "name of the local cluster"});
    schema.Add("served-model-name", &model, {.help = "model to talk to; empty = the first that the gateway lists"});
    schema.Add("api-key-file", &api_key_file, {.help = "file of API keys, one a line; the first is sent"});
    schema.Add("system", &system, {.help = "system message that the conversation begins with"});
    schema.Add("once", &once, {.help = "ask this, print the answer and end"});
    schema.Add("temperature", &temperature, {.help = "0 = always the likeliest token", .min = 0, .max = 2});
    schema.Add("max-tokens", &max_tokens, {.help = "longest answer in tokens; 0 = to the end of the context"});
    schema.Add("seed", &seed, {.help = "makes answers repeatable; 0 = a new one for each"});
  }
};

class Conversation {
 public:
  Conversation(const ChatConfig& config, GatewayClient& client) : config_(config), client_(client) {
    if (!config.system.empty()) Add("system", config.system);
  }

  // Prints the answer as it comes. Interrupted, it ends there and what came of it stays in the conversation.
  Status Ask(const std::string& question) {
    Add("user", question);
    g_interrupted = 0;
    const StatusOr<Answer> answer = client_.Stream("/v1/chat/completions", Body(), [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
      return g_interrupted == 0;
    });
    std::printf("\n");
    if (!answer.ok()) {
      messages_.erase(messages_.size() - 1);
      return answer.status();
    }
    Add("assistant", answer->text);
    return OkStatus();
  }

 private:
  void Add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }
  std::string Body() const {
    Json body = {
        {"model", config_.model}, {"messages", messages_}, {"stream", true}, {"temperature", config_.temperature}};
    if (config_.max_tokens != 0) body["max_tokens"] = config_.max_tokens;
    if (config_.seed != 0) body["seed"] = config_.seed;
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  const ChatConfig& config_;
  GatewayClient& client_;
  Json messages_ = Json::array();
};

int Converse(Conversation& conversation, const std::string& model) {
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) std::printf("%s; Ctrl-C stops an answer, Ctrl-D ends\n", model.c_str());
  std::string line;
  while (true) {
    if (terminal) {
      std::printf("> ");
      std::fflush(stdout);
    }
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (const Status status = conversation.Ask(line); !status.ok()) {
      Fail("chat", status);
      if (!terminal) return 1;
    }
  }
  if (terminal) std::printf("\n");
  return 0;
}

}  // namespace

int RunChat(const std::vector<std::string>& arguments) {
  ChatConfig config;
  config::Schema schema("millrace chat", "[flags]", "Talks to a running cluster in the terminal, turn by turn.");
  config.Describe(schema);
  const ParsedCommand parsed = ParseCommand(schema, arguments);
  if (parsed.over) return parsed.exit_status;

  const StatusOr<http::Endpoint> endpoint = FindGateway(config.url, config.name);
  if (!endpoint.ok()) return Fail("chat", endpoint.status());
  const StatusOr<std::string> key = ReadApiKey(config.api_key_file);
  if (!key.ok()) return Fail("chat", key.status());
  GatewayClient client(*endpoint, *key);
  StatusOr<std::string> model = client.ChooseModel(config.model);
  if (!model.ok()) return Fail("chat", model.status());
  config.model = *std::move(model);

  struct sigaction action {};
  action.sa_handler = OnInterrupt;  // without SA_RESTART: at the prompt it ends the read
  sigaction(SIGINT, &action, nullptr);
  Conversation conversation(config, client);
  if (config.once.empty()) return Converse(conversation, config.model);
  const Status status = conversation.Ask(config.once);
  return status.ok() ? 0 : Fail("chat", status);
}

}  // namespace millrace::cli
