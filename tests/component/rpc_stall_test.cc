// A peer process that is stopped shows only as silence; when it runs again its late messages come or, when this side
// gave up, nothing does. A peer process that is killed shows at once.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/component/rpc_fixture.h"

namespace millrace::rpc {
namespace {

using peer::DecodeProtocol;

class PeerProcess {
 public:
  PeerProcess() {
    int input[2];
    int output[2];
    EXPECT_EQ(pipe(input), 0);
    EXPECT_EQ(pipe(output), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    for (const int descriptor : {input[0], input[1], output[0], output[1]}) {
      posix_spawn_file_actions_addclose(&actions, descriptor);
    }
    const std::string path = std::string(std::getenv("MILLRACE_BUILD_DIR")) + "/tests/rpc_stall_peer";
    char* const arguments[] = {const_cast<char*>(path.c_str()), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments, environ), 0) << path;
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    input_ = input[1];
    char byte = 0;
    while (read(output[0], &byte, 1) == 1 && byte != '\n') port_.push_back(byte);
    close(output[0]);
  }
  ~PeerProcess() {
    Kill();
    close(input_);
  }

  std::string address() const { return "127.0.0.1:" + port_; }
  void Stop() {
    kill(pid_, SIGSTOP);
    int state = 0;
    EXPECT_EQ(waitpid(pid_, &state, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(state));
  }
  void Resume() { kill(pid_, SIGCONT); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int input_ = -1;
  std::string port_;
};

class Stall : public ::testing::Test {
 protected:
  ~Stall() override {
    RunOn(loop, [&] { client.stream.reset(); });
  }
  void Open(const DialOptions& options = {}) {
    dialer = MakeDialer<DecodeProtocol>(loop, options);
    RunOn(loop, [&] { client.stream = dialer->Open(process.address(), client.Handler()); });
    ASSERT_TRUE(client.messages.Take().has_value());
  }
  uint64_t NextProgress() {
    const auto message = client.messages.Take();
    return message.has_value() ? std::get<peer::Heartbeat>(*message).progress : 0;
  }
  // Until the peer has been silent for `silence`; false when it never is.
  bool AwaitSilence(std::chrono::milliseconds silence) {
    for (int i = 0; i < 1000; ++i) {
      if (!client.messages.Take(silence).has_value()) return true;
    }
    return false;
  }

  PeerProcess process;
  EventLoop loop{"client"};
  std::unique_ptr<peer::Dialer<DecodeProtocol>> dialer;
  ClientEnd<DecodeProtocol> client;
};

TEST_F(Stall, StoppedPeerIsSilentAndItsLateMessagesComeInOrder) {
  Open();
  process.Stop();
  ASSERT_TRUE(AwaitSilence(std::chrono::milliseconds(1000)));
  EXPECT_EQ(client.closed.size(), 0u);
  process.Resume();
  const uint64_t first = NextProgress();
  EXPECT_GT(first, 1u);
  for (uint64_t i = 1; i < 20; ++i) ASSERT_EQ(NextProgress(), first + i);
  EXPECT_EQ(client.closed.size(), 0u);
}

TEST_F(Stall, SideThatGaveUpHearsNothingOfTheResumedPeer) {
  Open();
  process.Stop();
  ASSERT_TRUE(AwaitSilence(std::chrono::milliseconds(500)));
  RunOn(loop, [&] { client.stream->Close(Status(Code::kUnavailable, Reason::kPeerLost, "silent")); });
  const auto status = client.closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->message(), "silent");
  process.Resume();
  // A new stream to the same process works; the old one stays dead.
  ClientEnd<DecodeProtocol> second;
  RunOn(loop, [&] { second.stream = dialer->Open(process.address(), second.Handler()); });
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(second.messages.Take().has_value());
  EXPECT_EQ(client.messages.size(), 0u);
  EXPECT_EQ(client.closed.size(), 0u);
  RunOn(loop, [&] { second.stream.reset(); });
}

TEST_F(Stall, StreamOpenedWhileThePeerIsStoppedIsServedWhenItResumes) {
  Open();
  process.Stop();
  ClientEnd<DecodeProtocol> second;
  RunOn(loop, [&] { second.stream = dialer->Open(process.address(), second.Handler()); });
  EXPECT_FALSE(second.messages.Take(std::chrono::milliseconds(300)).has_value());
  EXPECT_EQ(second.closed.size(), 0u);
  process.Resume();
  EXPECT_TRUE(second.messages.Take().has_value());
  RunOn(loop, [&] { second.stream.reset(); });
}

TEST_F(Stall, PeerStoppedForLongerThanKeepaliveAllowsIsLost) {
  Open({.keepalive_interval = Milliseconds(300), .keepalive_deadline = Milliseconds(300)});
  process.Stop();
  const auto status = client.closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->reason(), Reason::kPeerLost);
}

TEST_F(Stall, KilledPeerIsLostAtOnce) {
  Open();
  process.Kill();
  const TimePoint killed = loop.Now();
  const auto status = client.closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), Code::kUnavailable);
  EXPECT_EQ(status->reason(), Reason::kPeerLost);
  EXPECT_LT(ToSeconds(loop.Now() - killed), 5.0);
}

TEST_F(Stall, StoppedPeerThatIsKilledIsLostAtOnce) {
  Open();
  process.Stop();
  process.Kill();
  EXPECT_EQ(client.closed.Take()->reason(), Reason::kPeerLost);
}

}  // namespace
}  // namespace millrace::rpc
