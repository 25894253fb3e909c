#include "common/http/router.h"

#include <gtest/gtest.h>

namespace millrace::http {
namespace {

struct Answer {
  int status = 0;
  std::vector<Header> headers;
  std::string body;
};

class RecordingResponder final : public Responder {
 public:
  explicit RecordingResponder(Answer& answer) : answer_(answer) {}
  void Send(int status, std::vector<Header> headers, std::string body) override {
    answer_ = {status, std::move(headers), std::move(body)};
  }
  void StartStream(int, std::vector<Header>) override {}
  void Write(std::string) override {}
  void End() override {}
  size_t pending_bytes() const override { return 0; }
  void OnDisconnect(std::function<void()>) override {}

 private:
  Answer& answer_;
};

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    for (const char* path : {"/v1/models", "/v1/models/*", "/v1/*"}) {
      router_.Add("GET", path, [path](Request, std::unique_ptr<Responder> r) { r->Send(200, {}, path); });
    }
    router_.Add("POST", "/v1/completions",
                [](Request, std::unique_ptr<Responder> r) { r->Send(200, {}, "completions"); });
  }
  Answer Ask(const std::string& method, const std::string& path) {
    Answer answer;
    Request request;
    request.method = method;
    request.path = path;
    router_.Handle(std::move(request), std::make_unique<RecordingResponder>(answer));
    return answer;
  }
  Router router_;
};

TEST_F(RouterTest, ExactPathWinsThenLongestPrefix) {
  EXPECT_EQ(Ask("GET", "/v1/models").body, "/v1/models");
  EXPECT_EQ(Ask("GET", "/v1/models/a/b").body, "/v1/models/*");
  EXPECT_EQ(Ask("GET", "/v1/else").body, "/v1/*");
}

TEST_F(RouterTest, UnknownPathIs404AndBarePrefixIsNoMatch) {
  EXPECT_EQ(Ask("GET", "/nothing").status, 404);
  EXPECT_EQ(Ask("GET", "/v1/").status, 404);
}

TEST_F(RouterTest, UnknownMethodIs405WithAllow) {
  Answer answer = Ask("GET", "/v1/completions");
  EXPECT_EQ(answer.status, 405);
  ASSERT_FALSE(answer.headers.empty());
  EXPECT_EQ(answer.headers[0].name, "Allow");
  EXPECT_EQ(answer.headers[0].value, "POST, OPTIONS");
}

TEST_F(RouterTest, OptionsIs204AndHeadRunsGet) {
  EXPECT_EQ(Ask("OPTIONS", "/v1/models").status, 204);
  EXPECT_EQ(Ask("HEAD", "/v1/models").body, "/v1/models");
}

}  // namespace
}  // namespace millrace::http
