// What a process says of its readiness: /readyz and gRPC health are of one mind.

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/http/client.h"
#include "services/shell/process.h"

namespace millrace::shell {
namespace {

// Ready while a file is there.
class FileService final : public Service {
 public:
  explicit FileService(std::string path) : path_(std::move(path)) {}
  Status Start(const std::string&) override { return OkStatus(); }
  bool Ready() override { return std::filesystem::exists(path_); }
  std::vector<LogField> StatusFields() override { return {}; }
  void Drain(std::function<void()> done) override { done(); }

 private:
  const std::string path_;
};

[[noreturn]] void RunService(const std::string& folder) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string words[] = {"shell_ready_test", "--ready-file", folder + "/ports.json", "--log-level", "error"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const Program program{.name = "shell_ready_test", .role = cluster::Role::kDecode};
  _exit(Main(
      program, [](config::Schema&) {},
      [&](Process&) -> StatusOr<std::unique_ptr<Service>> {
        return std::unique_ptr<Service>(std::make_unique<FileService>(folder + "/go"));
      },
      static_cast<int>(argv.size()), argv.data()));
}

class ShellReadyTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace_shell_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    pid_ = fork();
    if (pid_ == 0) RunService(folder_);
    nlohmann::json ports;
    for (int i = 0; i < 3000 && !ports.contains("grpc_port"); ++i) {
      std::ifstream file(folder_ + "/ports.json");
      ports = nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(file), {}), nullptr, false);
      if (!ports.contains("grpc_port")) poll(nullptr, 0, 10);
    }
    ASSERT_TRUE(ports.contains("grpc_port"));
    admin_ = std::make_unique<http::Client>(http::Endpoint{"127.0.0.1", ports["admin_port"]});
    health_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel("127.0.0.1:" + ports["grpc_port"].dump(), grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }

  int Readyz() {
    const auto answer = admin_->Send({.target = "/readyz"});
    return answer.ok() ? answer->status : 0;
  }
  bool HealthIsServing() {
    grpc::ClientContext context;
    const grpc::Slice empty("");
    const grpc::ByteBuffer request(&empty, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    health_->UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                       [&done](const grpc::Status& status) { done.set_value(status); });
    EXPECT_TRUE(done.get_future().get().ok());
    grpc::Slice slice;
    EXPECT_TRUE(response.DumpToSingleSlice(&slice).ok());
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size()) == std::string("\x08\x01");
  }

  std::string folder_;
  pid_t pid_ = -1;
  std::unique_ptr<http::Client> admin_;
  std::unique_ptr<grpc::GenericStub> health_;
};

TEST_F(ShellReadyTest, GrpcHealthDoesNotLagBehindReadyz) {
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(Readyz(), 503);
    EXPECT_FALSE(HealthIsServing());
    std::ofstream(folder_ + "/go").flush();
    EXPECT_EQ(Readyz(), 200);
    EXPECT_TRUE(HealthIsServing());
    std::filesystem::remove(folder_ + "/go");
  }
}

}  // namespace
}  // namespace millrace::shell
