#include "common/api/request_parser.h"

#include <gtest/gtest.h>

#include "common/api/error_body.h"

namespace millrace::api {
namespace {

std::string Chat(const std::string& fields) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
}
std::string Completion(const std::string& fields) {
  return R"({"model":"m","prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}
std::string Messages(const std::string& messages) { return R"({"model":"m","messages":)" + messages + "}"; }

ApiRequest MustParse(Endpoint endpoint, const std::string& body) {
  auto request = ParseRequest(endpoint, body);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status().ToString();
  return request.ok() ? *std::move(request) : ApiRequest{};
}

TEST(RequestParser, ChatWithDefaults) {
  ApiRequest r = MustParse(Endpoint::kChat, Chat(""));
  EXPECT_EQ(r.completion.model, "m");
  const auto& chat = std::get<recipe::Conversation>(r.completion.prompt);
  ASSERT_EQ(chat.messages.size(), 1u);
  EXPECT_EQ(chat.messages[0].role, "user");
  EXPECT_EQ(chat.messages[0].content, std::vector<std::string>{"hi"});
  EXPECT_TRUE(chat.add_generation_prompt);
  EXPECT_EQ(r.completion.sampling, request::SamplingParams{});
  EXPECT_FALSE(r.completion.seed);
  EXPECT_FALSE(r.completion.max_tokens);
  EXPECT_FALSE(r.stream);
}

TEST(RequestParser, ChatWithEverything) {
  ApiRequest r = MustParse(
      Endpoint::kChat,
      Chat(R"("temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"presence_penalty":1,"frequency_penalty":-1,
        "repetition_penalty":1.1,"seed":-1,"stop":["a","b"],"max_tokens":9,"max_completion_tokens":7,"min_tokens":2,
        "ignore_eos":true,"stop_token_ids":[5],"logit_bias":{"7":-100,"3":1.5,"7":2},"stream":true,
        "stream_options":{"include_usage":true},"return_token_ids":true,"include_stop_str_in_output":true)"));
  const auto& c = r.completion;
  EXPECT_EQ(c.sampling.temperature, 0.5f);
  EXPECT_EQ(c.sampling.top_k, 40u);
  EXPECT_EQ(c.sampling.min_p, 0.05f);
  EXPECT_EQ(c.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(c.seed, UINT64_MAX);
  EXPECT_EQ(c.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.max_tokens, 7u);
  EXPECT_EQ(c.min_tokens, 2u);
  EXPECT_TRUE(c.ignore_eos);
  EXPECT_TRUE(c.include_stop);
  EXPECT_EQ(c.stop_token_ids, std::vector<request::TokenId>{5});
  EXPECT_EQ(c.sampling.logit_bias, (std::vector<std::pair<request::TokenId, float>>{{3, 1.5f}, {7, 2.0f}}));
  EXPECT_TRUE(r.stream && r.include_usage && r.return_token_ids);
}

TEST(RequestParser, PromptForms) {
  EXPECT_EQ(std::get<std::string>(MustParse(Endpoint::kCompletions, Completion("")).completion.prompt), "hi");
  using Ids = std::vector<request::TokenId>;
  auto prompt = [](const std::string& json) {
    return MustParse(Endpoint::kCompletions, R"({"model":"m","prompt":)" + json + "}").completion.prompt;
  };
  EXPECT_EQ(std::get<std::string>(prompt(R"(["x"])")), "x");
  EXPECT_EQ(std::get<Ids>(prompt("[1,2]")), (Ids{1, 2}));
  EXPECT_EQ(std::get<Ids>(prompt("[[1,2]]")), (Ids{1, 2}));
  EXPECT_EQ(std::get<std::string>(prompt(R"("a\u0000b")")).size(), 3u);
}

TEST(RequestParser, CompletionDefaultsAndEcho) {
  EXPECT_EQ(MustParse(Endpoint::kCompletions, Completion("")).completion.max_tokens, 16u);
  ApiRequest r = MustParse(Endpoint::kCompletions, Completion(R"("max_tokens":0,"echo":true)"));
  EXPECT_EQ(r.completion.max_tokens, 0u);
  EXPECT_TRUE(r.echo && r.completion.want_prompt_text);
}

TEST(RequestParser, NullsAreAbsentAndUnknownFieldsIgnored) {
  MustParse(Endpoint::kChat,
            Chat(R"("temperature":null,"top_p":null,"n":null,"stop":null,"stream":null,"stream_options":null,
              "max_tokens":null,"max_completion_tokens":null,"presence_penalty":null,"frequency_penalty":null,
              "logit_bias":null,"logprobs":null,"top_logprobs":null,"seed":null,"tools":null,"tool_choice":null,
              "response_format":null,"reasoning_effort":null,"user":null,"metadata":null,"store":null,"audio":null,
              "modalities":null,"parallel_tool_calls":null,"service_tier":null,"zz_unknown":{"a":[1]})"));
}

TEST(RequestParser, LenientChoices) {
  for (const char* fields :
       {R"("max_tokens":5.0)", R"("max_tokens":10000000)", R"("stop":[])", R"("tools":[])", R"("tool_choice":"none")",
        R"("response_format":{"type":"text"})", R"("logit_bias":{})", R"("parallel_tool_calls":false)", R"("n":1)",
        R"("store":true)", R"("user":"u")", R"("reasoning_effort":"low")", R"("modalities":["text"])"}) {
    MustParse(Endpoint::kChat, Chat(fields));
  }
  MustParse(Endpoint::kChat, Messages(R"([{"role":"developer","content":"s"},{"role":"user","name":"bob","content":
    [{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":""}])"));
}

TEST(RequestParser, DeveloperMessagesAreSystemMessages) {
  ApiRequest r = MustParse(Endpoint::kChat, Messages(R"([{"role":"developer","content":"s"}])"));
  EXPECT_EQ(std::get<recipe::Conversation>(r.completion.prompt).messages[0].role, "system");
}

struct Refusal {
  Endpoint endpoint;
  std::string body;
  std::string param;
  std::string code;
};

TEST(RequestParser, RefusalsNameTheFieldAndNeverEchoIt) {
  const Endpoint chat = Endpoint::kChat;
  const Endpoint text = Endpoint::kCompletions;
  const Refusal cases[] = {
      {chat, "{}", "model", "missing_required_parameter"},
      {chat, R"({"model":5})", "model", "invalid_type"},
      {chat, R"({"model":"m"})", "messages", "missing_required_parameter"},
      {chat, Messages(R"("hi")"), "messages", "invalid_type"},
      {chat, Messages("[]"), "messages", "invalid_value"},
      {chat, Messages(R"(["hi"])"), "messages[0]", "invalid_type"},
      {chat, Messages(R"([{"content":"x"}])"), "messages[0].role", "missing_required_parameter"},
      {chat, Messages(R"([{"role":"zzz","content":"x"}])"), "messages[0].role", "invalid_value"},
      {chat, Messages(R"([{"role":"user"}])"), "messages[0].content", "missing_required_parameter"},
      {chat, Messages(R"([{"role":"user","content":3}])"), "messages[0].content", "invalid_type"},
      {chat, Messages(R"([{"role":"user","content":[]}])"), "messages[0].content", "invalid_value"},
      {chat, Messages(R"([{"role":"user","content":[{"type":"zzz"}]}])"), "messages[0].content[0].type",
       "invalid_value"},
      {chat, Messages(R"([{"role":"user","content":[{"type":"text"}]}])"), "messages[0].content[0].text",
       "missing_required_parameter"},
      {chat, Messages(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///zzz"}}]}])"),
       "messages[0].content[0].type", "unsupported_parameter"},
      {chat, Messages(R"([{"role":"tool","tool_call_id":"zzz","content":"x"}])"), "messages[0].role",
       "unsupported_parameter"},
      {chat, Messages(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"zzz"}]}])"), "messages[0].tool_calls",
       "unsupported_parameter"},
      {chat, Chat(R"("temperature":-0.01)"), "temperature", "invalid_value"},
      {chat, Chat(R"("temperature":2.01)"), "temperature", "invalid_value"},
      {chat, Chat(R"("temperature":"zzz")"), "temperature", "invalid_type"},
      {chat, Chat(R"("temperature":true)"), "temperature", "invalid_type"},
      {chat, Chat(R"("top_p":1.1)"), "top_p", "invalid_value"},
      {chat, Chat(R"("n":2)"), "n", "unsupported_parameter"},
      {chat, Chat(R"("n":0)"), "n", "invalid_value"},
      {chat, Chat(R"("n":1.5)"), "n", "invalid_type"},
      {chat, Chat(R"("n":1000000000000)"), "n", "invalid_value"},
      {chat, Chat(R"("max_tokens":0)"), "max_tokens", "invalid_value"},
      {chat, Chat(R"("max_tokens":9223372036854775808)"), "max_tokens", "invalid_value"},
      {chat, Chat(R"("max_tokens":1e300)"), "max_tokens", "invalid_value"},
      {chat, Chat(R"("stop":"")"), "stop", "invalid_value"},
      {chat, Chat(R"("stop":["a",1])"), "stop", "invalid_type"},
      {chat, Chat(R"("stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])"), "stop",
       "invalid_value"},
      {chat, Chat(R"("stream":"zzz")"), "stream", "invalid_type"},
      {chat, Chat(R"("stream_options":{"include_usage":true})"), "stream_options", "invalid_value"},
      {chat, Chat(R"("stream":true,"stream_options":{"include_usage":1})"), "stream_options.include_usage",
       "invalid_type"},
      {chat, Chat(R"("logprobs":true)"), "logprobs", "unsupported_parameter"},
      {chat, Chat(R"("logprobs":5)"), "logprobs", "invalid_type"},
      {chat, Chat(R"("top_logprobs":2)"), "top_logprobs", "invalid_value"},
      {chat, Chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "invalid_value"},
      {chat, Chat(R"("logit_bias":{"zzz":1})"), "logit_bias", "invalid_value"},
      {chat, Chat(R"("logit_bias":{"5":101})"), "logit_bias", "invalid_value"},
      {chat, Chat(R"("logit_bias":[1])"), "logit_bias", "invalid_type"},
      {chat, Chat(R"("seed":9223372036854775808)"), "seed", "invalid_value"},
      {chat, Chat(R"("tools":[{"type":"zzz"}])"), "tools", "unsupported_parameter"},
      {chat, Chat(R"("tool_choice":"required")"), "tool_choice", "invalid_value"},
      {chat, Chat(R"("response_format":"zzz")"), "response_format", "invalid_type"},
      {chat, Chat(R"("response_format":{})"), "response_format.type", "missing_required_parameter"},
      {chat, Chat(R"("response_format":{"type":"json_object"})"), "response_format.type", "unsupported_parameter"},
      {chat, Chat(R"("reasoning_effort":"zzz")"), "reasoning_effort", "invalid_value"},
      {chat, Chat(R"("service_tier":"zzz")"), "service_tier", "invalid_value"},
      {chat, Chat(R"("modalities":["audio"])"), "modalities", "unsupported_parameter"},
      {chat, Chat(R"("min_tokens":5,"max_tokens":4)"), "min_tokens", "invalid_value"},
      {chat, Chat(R"("stop_token_ids":[-1])"), "stop_token_ids", "invalid_value"},
      {text, Completion(R"("stop_token_ids":5)"), "stop_token_ids", "invalid_type"},
      {text, Completion(R"("stop_token_ids":["zzz"])"), "stop_token_ids", "invalid_type"},
      {chat, Chat(R"("add_special_tokens":true)"), "add_special_tokens", "unsupported_parameter"},
      {text, Completion(R"("add_special_tokens":false)"), "add_special_tokens", "unsupported_parameter"},
      {text, R"({"model":"m"})", "prompt", "missing_required_parameter"},
      {text, R"({"model":"m","prompt":[]})", "prompt", "invalid_value"},
      {text, R"({"model":"m","prompt":["a",1]})", "prompt", "invalid_type"},
      {text, R"({"model":"m","prompt":["a","b"]})", "prompt", "unsupported_parameter"},
      {text, R"({"model":"m","prompt":[-1]})", "prompt", "invalid_value"},
      {text, R"({"model":"m","prompt":[1.5]})", "prompt", "invalid_type"},
      {text, Completion(R"("logprobs":6)"), "logprobs", "invalid_value"},
      {text, Completion(R"("logprobs":true)"), "logprobs", "invalid_type"},
      {text, Completion(R"("logprobs":1)"), "logprobs", "unsupported_parameter"},
      {text, Completion(R"("n":3,"best_of":2)"), "best_of", "invalid_value"},
      {text, Completion(R"("suffix":"zzz")"), "suffix", "unsupported_parameter"},
      {text, Completion(R"("max_tokens":-1)"), "max_tokens", "invalid_value"},
  };
  for (const Refusal& c : cases) {
    auto request = ParseRequest(c.endpoint, c.body);
    ASSERT_FALSE(request.ok()) << c.body;
    EXPECT_EQ(HttpStatus(request.status()), 400) << c.body;
    EXPECT_EQ(request.status().param(), c.param) << c.body;
    std::string body = ErrorBody(request.status());
    EXPECT_NE(body.find("\"code\":\"" + c.code + "\""), std::string::npos) << c.body << " -> " << body;
    EXPECT_NE(body.find("\"type\":\"invalid_request_error\""), std::string::npos) << body;
    EXPECT_EQ(body.find("zzz"), std::string::npos) << body;
  }
}

TEST(RequestParser, FieldsThatChangeTheAnswerAndAreNotHereAreNotPassedOver) {
  for (const std::string name :
       {"guided_json", "structured_outputs", "prompt_logprobs", "allowed_token_ids", "bad_words",
        "truncate_prompt_tokens", "chat_template", "documents", "web_search_options", "prompt_embeds", "cache_salt"}) {
    for (const auto& [endpoint, body] : {std::pair{Endpoint::kChat, Chat("\"" + name + "\":{}")},
                                         std::pair{Endpoint::kCompletions, Completion("\"" + name + "\":1")}}) {
      auto request = ParseRequest(endpoint, body);
      ASSERT_FALSE(request.ok()) << body;
      EXPECT_EQ(request.status().reason(), Reason::kUnsupported) << body;
      EXPECT_EQ(request.status().param(), name);
    }
  }
}

TEST(RequestParser, FieldsThatChangeNoAnswerAreIgnored) {
  MustParse(Endpoint::kChat, Chat(R"("store":true,"user":"u","metadata":{"a":"b"},"prediction":{"type":"content"},
      "prompt_cache_key":"k","safety_identifier":"s","priority":1)"));
}

TEST(RequestParser, StopTokenIdsHaveABound) {
  const auto ids = [](size_t count) {
    std::string list = "0";
    for (size_t i = 1; i < count; ++i) list += "," + std::to_string(i);
    return Completion("\"stop_token_ids\":[" + list + "]");
  };
  EXPECT_EQ(MustParse(Endpoint::kCompletions, ids(kMaxStopTokenIds)).completion.stop_token_ids.size(),
            kMaxStopTokenIds);
  EXPECT_EQ(ParseRequest(Endpoint::kCompletions, ids(kMaxStopTokenIds + 1)).status().param(), "stop_token_ids");
}

TEST(RequestParser, StopStringsOfMegabytesAreRefused) {
  auto stop = [](size_t bytes) { return Chat("\"stop\":[\"a\",\"" + std::string(bytes - 1, 'b') + "\"]"); };
  MustParse(Endpoint::kChat, stop(kMaxStopBytes));
  for (size_t bytes : {kMaxStopBytes + 1, size_t{2} << 20}) {
    auto refused = ParseRequest(Endpoint::kChat, stop(bytes));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(HttpStatus(refused.status()), 400);
    EXPECT_EQ(refused.status().param(), "stop");
  }
}

TEST(RequestParser, BiasesAndMessagesHaveABound) {
  auto list = [](size_t count, auto&& item) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + item(i);
    return text;
  };
  auto biases = [&](size_t count) {
    return Chat("\"logit_bias\":{" + list(count, [](size_t i) { return "\"" + std::to_string(i) + "\":1"; }) + "}");
  };
  auto messages = [&](size_t count) {
    return Messages("[" + list(count, [](size_t) { return std::string(R"({"role":"user","content":""})"); }) + "]");
  };
  MustParse(Endpoint::kChat, biases(kMaxLogitBiases));
  MustParse(Endpoint::kChat, messages(kMaxMessages));
  EXPECT_EQ(ParseRequest(Endpoint::kChat, biases(kMaxLogitBiases + 1)).status().param(), "logit_bias");
  EXPECT_EQ(ParseRequest(Endpoint::kChat, messages(kMaxMessages + 1)).status().param(), "messages");
}

TEST(RequestParser, BodyThatIsNoObject) {
  for (const char* body : {"", "[]", "5", "null", "\"x\"", "{\"model\": "}) {
    auto request = ParseRequest(Endpoint::kChat, body);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(ErrorBody(request.status()).find("{\"error\":{\"message\":\""), 0u);
    EXPECT_NE(ErrorBody(request.status()).find("\"param\":null,\"code\":null}}"), std::string::npos);
  }
}

TEST(ErrorBody, StaysSmallWhateverTheMessage) {
  Status status = Status(Code::kInternal, std::string(1 << 20, '"')).WithParam(std::string(1 << 20, 'x'));
  EXPECT_LT(ErrorBody(status).size(), 4096u);
}

TEST(ErrorBody, RetryAfterIsWholeSecondsRoundedUp) {
  Status status = Status(Code::kUnavailable, Reason::kOverloaded, "full").WithRetryAfterMs(1200);
  auto headers = ErrorHeaders(status);
  ASSERT_EQ(headers.size(), 3u);
  EXPECT_EQ(headers[1].name + ": " + headers[1].value, "Retry-After: 2");
}

}  // namespace
}  // namespace millrace::api
