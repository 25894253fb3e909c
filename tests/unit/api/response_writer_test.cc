#include "common/api/response_writer.h"

#include <gtest/gtest.h>

namespace millrace::api {
namespace {

using gateway::Finished;
using request::FinishReason;

constexpr const char* kUsage =
    R"({"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8,"audio_tokens":0},)"
    R"("completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}})";

AnswerIdentity Identity(Endpoint endpoint, bool usage, bool ids) { return {endpoint, "id-1", 17, "m", usage, ids}; }
const Finished kFinished{FinishReason::kStop, {9, 4, 8}};

TEST(ResponseWriter, ChatStreamWithUsage) {
  ResponseWriter writer(Identity(Endpoint::kChat, true, false));
  std::string all = writer.StartEvent({1, 2}, "") + writer.DeltaEvent({"Hel\"lo", {3}}) + writer.DeltaEvent({"", {4}}) +
                    writer.EndEvents(kFinished);
  std::string head = R"(data: {"id":"id-1","object":"chat.completion.chunk","created":17,"model":"m","choices":[)";
  EXPECT_EQ(
      all,
      head +
          R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null})" +
          "\n\n" + head +
          R"({"index":0,"delta":{"content":"Hel\"lo"},"logprobs":null,"finish_reason":null}],"usage":null})" + "\n\n" +
          head + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null})" + "\n\n" + head +
          R"(],"usage":)" + kUsage + "}\n\ndata: [DONE]\n\n");
}

TEST(ResponseWriter, NoUsageUnlessAskedFor) {
  ResponseWriter writer(Identity(Endpoint::kChat, false, false));
  std::string all = writer.StartEvent({1}, "") + writer.DeltaEvent({"x", {3}}) + writer.EndEvents(kFinished);
  EXPECT_EQ(all.find("usage"), std::string::npos);
  EXPECT_EQ(all.find("token_ids"), std::string::npos);
  EXPECT_EQ(all.find("error"), std::string::npos);
}

TEST(ResponseWriter, IdsRideOnTheNextTextAndTheRestOnTheFinishChunk) {
  ResponseWriter writer(Identity(Endpoint::kChat, false, true));
  EXPECT_NE(writer.StartEvent({1, 2}, "").find("\"prompt_token_ids\":[1,2]}"), std::string::npos);
  EXPECT_EQ(writer.DeltaEvent({"", {3}}), "");
  EXPECT_NE(writer.DeltaEvent({"x", {4}}).find("\"token_ids\":[3,4]}"), std::string::npos);
  EXPECT_EQ(writer.DeltaEvent({"", {5}}), "");
  EXPECT_NE(writer.EndEvents(kFinished).find(R"("finish_reason":"stop","token_ids":[5]})"), std::string::npos);
}

TEST(ResponseWriter, CompletionsStream) {
  ResponseWriter writer(Identity(Endpoint::kCompletions, false, true));
  EXPECT_EQ(writer.StartEvent({1}, ""), "");
  EXPECT_EQ(
      writer.DeltaEvent({"a", {3}}),
      R"(data: {"id":"id-1","object":"text_completion","created":17,"model":"m","choices":[{"text":"a","index":0,)"
      R"("logprobs":null,"finish_reason":null,"prompt_token_ids":[1],"token_ids":[3]}]})"
      "\n\n");
  EXPECT_EQ(writer.DeltaEvent({"b", {4}}).find("prompt_token_ids"), std::string::npos);
}

TEST(ResponseWriter, EchoComesFirst) {
  ResponseWriter writer(Identity(Endpoint::kCompletions, false, false));
  EXPECT_NE(writer.StartEvent({1}, "once").find(R"("text":"once")"), std::string::npos);
}

TEST(ResponseWriter, WholeBodies) {
  ResponseWriter chat(Identity(Endpoint::kChat, false, true));
  EXPECT_EQ(chat.WholeBody({1}, "hi", {2, 3}, {FinishReason::kLength, {9, 4, 8}}),
            std::string(R"({"id":"id-1","object":"chat.completion","created":17,"model":"m","choices":[{"index":0,)"
                        R"("message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,)"
                        R"("finish_reason":"length","token_ids":[2,3]}],"usage":)") +
                kUsage + R"(,"prompt_token_ids":[1]})");
  ResponseWriter text(Identity(Endpoint::kCompletions, false, false));
  EXPECT_EQ(text.WholeBody({1}, "hi", {2, 3}, kFinished),
            std::string(R"({"id":"id-1","object":"text_completion","created":17,"model":"m","choices":[{"index":0,)"
                        R"("text":"hi","logprobs":null,"finish_reason":"stop"}],"usage":)") +
                kUsage + "}");
}

TEST(ResponseWriter, ErrorEventHasAllFourKeys) {
  EXPECT_EQ(ResponseWriter::ErrorEvent({Code::kUnavailable, Reason::kPeerLost, "engine died"}),
            "data: {\"error\":{\"message\":\"engine died\",\"type\":\"server_error\",\"param\":null,"
            "\"code\":\"service_unavailable\"}}\n\n");
}

}  // namespace
}  // namespace millrace::api
