#include "common/api/frontend.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>

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

class FrontendTest : public ::testing::Test {
 protected:
  FrontendTest() { frontend_.Register(router_); }

  void Post(Heard& heard, const std::string& id, std::string body, std::vector<http::Header> headers = {}) {
    http::Request request;
    request.id = id;
    request.method = "POST";
    request.path = "/v1/completions";
    request.headers = std::move(headers);
    request.body = std::move(body);
    router_.Handle(std::move(request), std::make_unique<RecordingResponder>(&heard));
  }
  void RunReady() {
    work_.RunReady();
    control_.RunReady();
  }

  ManualExecutor control_, work_, large_work_;
  SilentService service_;
  const std::unique_ptr<MetricRegistry> metrics_ = MakeMemoryMetrics();
  Frontend frontend_{{}, service_, control_, work_, large_work_, *metrics_};
  http::Router router_;
};

constexpr char kBody[] = R"({"model": "m", "prompt": "hi"})";

TEST_F(FrontendTest, SmallBodiesDoNotWaitBehindALargeOne) {
  Heard heard;
  Post(heard, "large", R"({"model": "m", "prompt": ")" + std::string(kLargeBodyBytes, 'x') + "\"}");
  Post(heard, "small", kBody);
  RunReady();
  ASSERT_EQ(service_.started.size(), 1u);
  EXPECT_EQ(service_.started[0].request_id, "small");
  EXPECT_FALSE(service_.started[0].large);
  large_work_.RunReady();
  control_.RunReady();
  ASSERT_EQ(service_.started.size(), 2u);
  EXPECT_EQ(service_.started[1].request_id, "large");
  EXPECT_TRUE(service_.started[1].large);
}

TEST_F(FrontendTest, ADrainThatIsCutShortTellsEveryClient) {
  std::array<Heard, 3> heard;
  Post(heard[0], "streams", R"({"model": "m", "prompt": "x", "stream": true})");
  Post(heard[1], "whole", kBody);
  RunReady();
  ASSERT_EQ(service_.sinks.size(), 2u);
  service_.sinks[0]->OnAccepted({});
  Post(heard[2], "not parsed yet", kBody);
  int drained = 0;
  frontend_.Drain([&] { ++drained; });
  control_.RunReady();
  EXPECT_EQ(drained, 0);
  frontend_.CutShort();
  RunReady();
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(service_.cancelled, 2);
  EXPECT_EQ(heard[0].status, 200);
  EXPECT_EQ(heard[0].body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(heard[1].status, 503);
  EXPECT_EQ(heard[2].status, 503);
  for (const Heard& one : heard) {
    EXPECT_NE(one.body.find("The server stopped before the answer was complete."), std::string::npos);
    EXPECT_EQ(one.ends, 1);
  }
}

TEST_F(FrontendTest, ClientGoneBeforeItsRequestIsParsedLeavesALine) {
  Heard heard;
  Post(heard, "req_gone", kBody);
  ::testing::internal::CaptureStderr();
  heard.on_disconnect();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("request_left_unread"), std::string::npos) << log;
  EXPECT_NE(log.find("req_gone"), std::string::npos) << log;
  RunReady();
  EXPECT_TRUE(service_.started.empty());
  EXPECT_EQ(heard.ends, 0);
  EXPECT_EQ(frontend_.active(), 0u);
}

TEST_F(FrontendTest, CacheHeaderWithAWordThatNobodyKnowsIsRefused) {
  const auto answer_to = [this](const std::string& value) {
    Heard heard;
    Post(heard, "", kBody, {{"millrace-cache", value}});
    RunReady();
    return heard.body;
  };
  for (const char* wrong : {"no_store", "off", "no-store;no-read", "no-store, never"}) {
    const std::string answer = answer_to(wrong);
    EXPECT_NE(answer.find("must be 'no-store', 'no-read'"), std::string::npos) << wrong << ": " << answer;
  }
  EXPECT_TRUE(service_.started.empty());
  std::array<Heard, 3> heard;
  size_t next = 0;
  for (const char* value : {" no-read ,no-store", "no-read", ""}) {
    Post(heard[next++], "", kBody, {{"millrace-cache", value}});
    RunReady();
  }
  ASSERT_EQ(service_.started.size(), 3u);
  EXPECT_FALSE(service_.started[0].cache_read || service_.started[0].cache_write);
  EXPECT_TRUE(!service_.started[1].cache_read && service_.started[1].cache_write);
  EXPECT_TRUE(service_.started[2].cache_read && service_.started[2].cache_write);
}

}  // namespace
}  // namespace millrace::api
