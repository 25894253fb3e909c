#include "common/api/frontend.h"

#include <gtest/gtest.h>

#include <array>

#include "common/base/event_loop.h"

namespace millrace::api {
namespace {

// Takes requests and never answers them.
class SilentService final : public gateway::CompletionService {
 public:
  gateway::CallId Start(gateway::CompletionRequest request, gateway::CompletionSink& sink) override {
    started.push_back(std::move(request));
    sinks.push_back(&sink);
    return gateway::CallId{started.size()};
  }
  void Cancel(gateway::CallId) override { ++cancelled; }
  std::vector<gateway::ServedModel> Models() const override { return {}; }
  Status CheckModel(const std::string&) const override { return OkStatus(); }

  std::vector<gateway::CompletionRequest> started;
  std::vector<gateway::CompletionSink*> sinks;
  int cancelled = 0;
};

struct Heard {
  int status = 0;
  std::string body;
  int ends = 0;
  std::function<void()> on_disconnect;
};

class RecordingResponder final : public http::Responder {
 public:
  explicit RecordingResponder(Heard* heard) : heard_(heard) {}
  void Send(int status, std::vector<http::Header>, std::string body) override {
    heard_->status = status;
    heard_->body = std::move(body);
    ++heard_->ends;
  }
  void StartStream(int status, std::vector<http::Header>) override { heard_->status = status; }
  void Write(std::string bytes) override { heard_->body += bytes; }
  void End() override { ++heard_->ends; }
  size_t pending_bytes() const override { return 0; }
  void OnDisconnect(std::function<void()> callback) override { heard_->on_disconnect = std::move(callback); }

 private:
  Heard* const heard_;
};

TEST(FrontendTest, SmallBodiesDoNotWaitBehindALargeOne) {
  ManualExecutor control, work, large_work;
  SilentService service;
  const auto metrics = MakeMemoryMetrics();
  Frontend frontend({}, service, control, work, large_work, *metrics);
  http::Router router;
  frontend.Register(router);
  Heard heard;
  const auto post = [&](const std::string& id, size_t prompt_bytes) {
    http::Request request;
    request.id = id;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = R"({"model": "m", "prompt": ")" + std::string(prompt_bytes, 'x') + "\"}";
    router.Handle(std::move(request), std::make_unique<RecordingResponder>(&heard));
  };
  post("large", kLargeBodyBytes);
  post("small", 100);
  work.RunReady();
  control.RunReady();
  ASSERT_EQ(service.started.size(), 1u);
  EXPECT_EQ(service.started[0].request_id, "small");
  EXPECT_FALSE(service.started[0].large);
  large_work.RunReady();
  control.RunReady();
  ASSERT_EQ(service.started.size(), 2u);
  EXPECT_EQ(service.started[1].request_id, "large");
  EXPECT_TRUE(service.started[1].large);
}

TEST(FrontendTest, ADrainThatIsCutShortTellsEveryClient) {
  ManualExecutor control, work, large_work;
  SilentService service;
  const auto metrics = MakeMemoryMetrics();
  Frontend frontend({}, service, control, work, large_work, *metrics);
  http::Router router;
  frontend.Register(router);
  std::array<Heard, 3> heard;
  const std::array<std::string, 3> bodies = {R"({"model": "m", "prompt": "x", "stream": true})",
                                             R"({"model": "m", "prompt": "x"})", R"({"model": "m", "prompt": "y"})"};
  const auto post = [&](size_t i) {
    http::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = bodies[i];
    router.Handle(std::move(request), std::make_unique<RecordingResponder>(&heard[i]));
  };
  for (size_t i : {0u, 1u}) post(i);
  work.RunReady();
  control.RunReady();
  ASSERT_EQ(service.sinks.size(), 2u);
  service.sinks[0]->OnAccepted({});
  post(2);  // not parsed yet
  int drained = 0;
  frontend.Drain([&] { ++drained; });
  control.RunReady();
  EXPECT_EQ(drained, 0);
  frontend.CutShort();
  work.RunReady();
  control.RunReady();
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(service.cancelled, 2);
  EXPECT_EQ(heard[0].status, 200);
  EXPECT_NE(heard[0].body.find("The server stopped before the answer was complete."), std::string::npos);
  EXPECT_EQ(heard[0].body.find("[DONE]"), std::string::npos);
  for (size_t i : {1u, 2u}) {
    EXPECT_EQ(heard[i].status, 503);
    EXPECT_NE(heard[i].body.find("The server stopped before the answer was complete."), std::string::npos);
  }
  for (const Heard& one : heard) EXPECT_EQ(one.ends, 1);
}

TEST(FrontendTest, ClientGoneBeforeItsRequestIsParsedLeavesALine) {
  ManualExecutor control, work;
  SilentService service;
  const auto metrics = MakeMemoryMetrics();
  Frontend frontend({}, service, control, work, work, *metrics);
  http::Router router;
  frontend.Register(router);
  Heard heard;
  http::Request request;
  request.id = "req_gone";
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = R"({"model": "m", "prompt": "hi"})";
  router.Handle(std::move(request), std::make_unique<RecordingResponder>(&heard));
  ::testing::internal::CaptureStderr();
  heard.on_disconnect();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("request_left_unread"), std::string::npos) << log;
  EXPECT_NE(log.find("req_gone"), std::string::npos) << log;
  work.RunReady();
  control.RunReady();
  EXPECT_TRUE(service.started.empty());
  EXPECT_EQ(heard.ends, 0);
  EXPECT_EQ(frontend.active(), 0u);
}

TEST(FrontendTest, CacheHeaderWithAWordThatNobodyKnowsIsRefused) {
  ManualExecutor control, work;
  SilentService service;
  const auto metrics = MakeMemoryMetrics();
  Frontend frontend({}, service, control, work, work, *metrics);
  http::Router router;
  frontend.Register(router);
  Heard heard;
  const auto post = [&](const std::string& value) {
    heard = {};
    http::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.headers = {{"millrace-cache", value}};
    request.body = R"({"model": "m", "prompt": "hi"})";
    router.Handle(std::move(request), std::make_unique<RecordingResponder>(&heard));
    work.RunReady();
    control.RunReady();
    return heard.body;
  };
  for (const char* wrong : {"no_store", "off", "no-store;no-read", "no-store, never"}) {
    const std::string answer = post(wrong);
    EXPECT_NE(answer.find("must be 'no-store', 'no-read'"), std::string::npos) << wrong << ": " << answer;
  }
  EXPECT_TRUE(service.started.empty());
  post(" no-read ,no-store");
  post("no-read");
  post("");
  ASSERT_EQ(service.started.size(), 3u);
  EXPECT_FALSE(service.started[0].cache_read || service.started[0].cache_write);
  EXPECT_TRUE(!service.started[1].cache_read && service.started[1].cache_write);
  EXPECT_TRUE(service.started[2].cache_read && service.started[2].cache_write);
}

}  // namespace
}  // namespace millrace::api
