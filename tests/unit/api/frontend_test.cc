#include "common/api/frontend.h"

#include <gtest/gtest.h>

#include "common/base/event_loop.h"

namespace millrace::api {
namespace {

// Takes requests and never answers them.
class SilentService final : public gateway::CompletionService {
 public:
  gateway::CallId Start(gateway::CompletionRequest request, gateway::CompletionSink&) override {
    started.push_back(std::move(request));
    return gateway::CallId{started.size()};
  }
  void Cancel(gateway::CallId) override {}
  std::vector<gateway::ServedModel> Models() const override { return {}; }
  Status CheckModel(const std::string&) const override { return OkStatus(); }

  std::vector<gateway::CompletionRequest> started;
};

class UnheardResponder final : public http::Responder {
 public:
  void Send(int, std::vector<http::Header>, std::string) override {}
  void StartStream(int, std::vector<http::Header>) override {}
  void Write(std::string) override {}
  void End() override {}
  size_t pending_bytes() const override { return 0; }
  void OnDisconnect(std::function<void()>) override {}
};

TEST(FrontendTest, SmallBodiesDoNotWaitBehindALargeOne) {
  ManualExecutor control, work, large_work;
  SilentService service;
  const auto metrics = MakeMemoryMetrics();
  Frontend frontend({}, service, control, work, large_work, *metrics);
  http::Router router;
  frontend.Register(router);
  const auto post = [&](const std::string& id, size_t prompt_bytes) {
    http::Request request;
    request.id = id;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = R"({"model": "m", "prompt": ")" + std::string(prompt_bytes, 'x') + "\"}";
    router.Handle(std::move(request), std::make_unique<UnheardResponder>());
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

}  // namespace
}  // namespace millrace::api
