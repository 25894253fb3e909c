#include "services/cli/gateway_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/event_loop.h"
#include "common/http/server.h"
#include "services/cli/state_folder.h"

namespace millrace::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// A gateway that knows one key.
class KeyedGateway {
 public:
  KeyedGateway() {
    server_ = *http::Server::Listen({}, loop_, [](http::Request request, std::unique_ptr<http::Responder> responder) {
      const bool known = request.HeaderValue("authorization") == "Bearer right";
      responder->Send(known ? 200 : 401, {}, known ? R"({"data": [{"id": "m"}]})" : R"({"error": {"message": "no"}})");
    });
  }
  ~KeyedGateway() { server_->Stop(); }
  StatusOr<std::string> Ask(const std::string& key) {
    return GatewayClient({"127.0.0.1", server_->port()}, key).ChooseModel("");
  }

 private:
  EventLoop loop_{"handler"};
  std::unique_ptr<http::Server> server_;
};

TEST(ChooseModelTest, AGatewayThatWantsAKeyIsNotSaidToBeAway) {
  KeyedGateway gateway;
  for (const auto& [key, text] : {std::pair("", "wants an API key"), {"wrong", "does not know this API key"}}) {
    const auto model = gateway.Ask(key);
    EXPECT_EQ(model.status().code(), Code::kUnauthenticated);
    EXPECT_THAT(model.status().message(), HasSubstr(text));
    EXPECT_THAT(model.status().message(), HasSubstr("--api-key-file"));
    EXPECT_THAT(model.status().message(), Not(HasSubstr("is a cluster running?")));
  }
  const auto model = gateway.Ask("right");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(*model, "m");
}

TEST(ReadApiKeyTest, TheFileOfTheGatewayItselfWillDo) {
  const std::string path = testing::TempDir() + "keys_" + std::to_string(getpid());
  std::ofstream(path) << "# team one\n\nright \nother\n";
  EXPECT_EQ(*ReadApiKey(path), "right");
  std::ofstream(path) << "# nobody\n";
  EXPECT_THAT(ReadApiKey(path).status().message(), HasSubstr("no API key in " + path));
  std::filesystem::remove(path);
  EXPECT_EQ(*ReadApiKey(""), "");
}

class FindGatewayTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "find_gateway_" + std::to_string(getpid());
    setenv("XDG_STATE_HOME", root_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(FindGatewayTest, WithoutAClusterOfTheNameNoOtherGatewayIsUsed) {
  for (const char* name : {"default", "typo"}) {
    const auto endpoint = FindGateway("", name);
    ASSERT_FALSE(endpoint.ok());
    EXPECT_THAT(endpoint.status().message(), HasSubstr(std::string("no cluster named '") + name));
    EXPECT_THAT(endpoint.status().message(), HasSubstr("--url"));
  }
  const auto given = FindGateway("http://127.0.0.1:9", "typo");
  ASSERT_TRUE(given.ok());
  EXPECT_EQ(given->port, 9);
}

TEST_F(FindGatewayTest, TheEndpointOfAKilledClusterIsNotUsed) {
  const StateFolder folder = *StateFolder::Locate("test");
  ASSERT_TRUE(folder.Create().ok());
  ClusterRecord record;
  record.endpoint = "http://127.0.0.1:8080";
  record.supervisor = *IdentifyProcess(getpid());
  ASSERT_TRUE(folder.Write(record).ok());
  EXPECT_TRUE(FindGateway("", "test").ok());
  ++record.supervisor.start_ticks;
  ASSERT_TRUE(folder.Write(record).ok());
  EXPECT_THAT(FindGateway("", "test").status().message(), HasSubstr("was killed"));
}

}  // namespace
}  // namespace millrace::cli
