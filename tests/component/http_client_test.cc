#include "common/http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/event_loop.h"
#include "common/http/server.h"

namespace millrace::http {
namespace {

using testing::HasSubstr;

class HttpClientTest : public testing::Test {
 protected:
  void Serve(Handler handler) {
    auto server = Server::Listen({}, loop_, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  void TearDown() override {
    if (server_) server_->Stop();
  }
  Client NewClient(ClientOptions options = {}) { return Client({"127.0.0.1", server_->port()}, options); }

  EventLoop loop_{"handler"};
  std::unique_ptr<Server> server_;
};

TEST_F(HttpClientTest, SendsABodyAndGetsTheAnswerOverOneKeptConnection) {
  Serve([](Request request, std::unique_ptr<Responder> responder) {
    responder->Send(request.method == "POST" ? 201 : 404, {{"X-Path", request.path}}, request.body + "!");
  });
  Client client = NewClient();
  for (int i = 0; i < 3; ++i) {
    const auto response = client.Send({"POST", "/a?b=c", {{"Content-Type", "text/plain"}}, "hello"});
    ASSERT_TRUE(response.ok()) << response.status().ToString();
    EXPECT_EQ(response->status, 201);
    EXPECT_EQ(response->body, "hello!");
    EXPECT_EQ(response->HeaderValue("x-path"), "/a");
    EXPECT_EQ(server_->connections(), 1u);
  }
  const auto missing = client.Send({"GET", "/", {}, ""});
  ASSERT_TRUE(missing.ok());
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(missing->body, "!");
}

TEST_F(HttpClientTest, StreamsAsPiecesCome) {
  Serve([](Request, std::unique_ptr<Responder> responder) {
    responder->StartStream(200, {{"Content-Type", "text/event-stream"}});
    for (int i = 0; i < 5; ++i) responder->Write("data: " + std::to_string(i) + "\n\n");
    responder->End();
  });
  std::string body;
  const auto response = NewClient().Stream({}, [&](std::string_view piece) {
    body += piece;
    return true;
  });
  ASSERT_TRUE(response.ok());
  EXPECT_THAT(body, HasSubstr("data: 4\n\n"));
}

TEST_F(HttpClientTest, AnErrorAnswerToAStreamComesBackWithItsBody) {
  Serve([](Request, std::unique_ptr<Responder> responder) { responder->Send(503, {}, "busy"); });
  int pieces = 0;
  const auto response = NewClient().Stream({}, [&](std::string_view) { return ++pieces > 0; });
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(response->body, "busy");
  EXPECT_EQ(pieces, 0);
}

TEST_F(HttpClientTest, AStreamCutBeforeItsEndIsAnError) {
  Serve([](Request, std::unique_ptr<Responder> responder) {
    responder->StartStream(200, {});
    responder->Write("half");
  });
  const auto response = NewClient().Stream({}, [](std::string_view) { return true; });
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.status().reason(), Reason::kPeerLost);
}

TEST_F(HttpClientTest, AServerThatSaysNothingTimesOut) {
  std::unique_ptr<Responder> held;
  Serve([&held](Request, std::unique_ptr<Responder> responder) { held = std::move(responder); });
  const auto response = NewClient({.idle_timeout = Milliseconds(50)}).Send({});
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.status().code(), Code::kDeadlineExceeded);
  loop_.Post([&held] { held = nullptr; });  // responders belong to the handlers' executor
  loop_.Stop();
}

TEST_F(HttpClientTest, NobodyListeningIsUnavailableAndNamesTheAddress) {
  Serve([](Request, std::unique_ptr<Responder> responder) { responder->Send(200, {}, ""); });
  const uint16_t port = server_->port();
  server_->Stop();
  const auto response = Client({"127.0.0.1", port}).Send({});
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.status().code(), Code::kUnavailable);
  EXPECT_THAT(response.status().message(), HasSubstr("127.0.0.1:" + std::to_string(port)));
}

TEST(ParseEndpointTest, TakesUrlsAndRefusesTheRest) {
  const auto url = ParseEndpoint("http://localhost:8080/v1/");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "localhost");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(ParseEndpoint("example.org")->port, 80);
  EXPECT_EQ(ParseEndpoint("[::1]:99")->host, "::1");
  EXPECT_EQ(ParseEndpoint("[::1]:99")->port, 99);
  for (const char* bad : {"", "http://", "https://a", "a:0", "a:70000", "a:b", "[::1", "a:1x"}) {
    EXPECT_FALSE(ParseEndpoint(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace millrace::http
