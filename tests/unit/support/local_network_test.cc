#include "tests/support/local_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "common/base/event_loop.h"
#include "common/peer/protocols.h"
#include "tests/support/fake_backend.h"

namespace millrace::support {
namespace {

using peer::DecodeProtocol;
using ::testing::ElementsAre;

// Echoes `from` of each Attach as a one-token chunk; keeps what happened.
class EchoService final : public peer::Service<DecodeProtocol> {
 public:
  peer::StreamHandler<DecodeProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<DecodeProtocol>> accepted) override {
    stream = std::move(accepted);
    ++accepts;
    return {[this](DecodeProtocol::Up message) {
              const auto& attach = std::get<peer::Attach>(message);
              received.push_back(attach.from);
              if (stream) stream->Send(peer::TokenChunk{attach.from, {static_cast<request::TokenId>(attach.from)}});
            },
            [this](Status status) { closed.push_back(status); }};
  }
  std::unique_ptr<peer::ServerStream<DecodeProtocol>> stream;
  std::vector<uint32_t> received;
  std::vector<Status> closed;
  int accepts = 0;
};

class LocalNetworkTest : public ::testing::Test {
 protected:
  LocalNetworkTest() : dialer_(network_.MakeDialer<DecodeProtocol>(executor_, "client")) {
    network_.Serve<DecodeProtocol>("server", executor_, service_);
  }
  std::unique_ptr<peer::ClientStream<DecodeProtocol>> Open() {
    return dialer_->Open("server", {[this](DecodeProtocol::Down message) {
                                      if (const auto* chunk = std::get_if<peer::TokenChunk>(&message)) {
                                        received_.push_back(chunk->first_index);
                                      }
                                    },
                                    [this](Status status) { closed_.push_back(status); }});
  }
  ManualExecutor executor_;
  LocalNetwork network_;
  EchoService service_;
  std::unique_ptr<peer::Dialer<DecodeProtocol>> dialer_;
  std::vector<uint32_t> received_;
  std::vector<Status> closed_;
};

TEST_F(LocalNetworkTest, MessagesArriveInOrderBothWaysAndCloseComesLast) {
  const auto stream = Open();
  for (uint32_t i = 0; i < 5; ++i) stream->Send(peer::Attach{1, "s", i});
  executor_.RunReady();
  EXPECT_THAT(service_.received, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(received_, ElementsAre(0, 1, 2, 3, 4));
  service_.stream->Send(peer::TokenChunk{9, {}});
  service_.stream->Close(Status(Code::kAborted, Reason::kKvEvicted, "evicted"));
  service_.stream->Send(peer::TokenChunk{10, {}});
  executor_.RunReady();
  EXPECT_THAT(received_, ElementsAre(0, 1, 2, 3, 4, 9));
  ASSERT_EQ(closed_.size(), 1u);
  EXPECT_EQ(closed_[0].reason(), Reason::kKvEvicted);
  EXPECT_EQ(network_.open_streams("server"), 0u);
}

TEST_F(LocalNetworkTest, DestroyedClientCancelsTheServerAndHearsNothing) {
  auto stream = Open();
  executor_.RunReady();
  stream.reset();
  executor_.RunReady();
  ASSERT_EQ(service_.closed.size(), 1u);
  EXPECT_EQ(service_.closed[0].code(), Code::kCancelled);
  EXPECT_TRUE(closed_.empty());
}

TEST_F(LocalNetworkTest, DestroyedServerEndClosesTheClientAfterWhatWasSent) {
  const auto stream = Open();
  executor_.RunReady();
  service_.stream->Send(peer::TokenChunk{1, {}});
  service_.stream.reset();
  executor_.RunReady();
  EXPECT_THAT(received_, ElementsAre(1));
  ASSERT_EQ(closed_.size(), 1u);
  EXPECT_EQ(closed_[0].code(), Code::kCancelled);
  EXPECT_TRUE(service_.closed.empty());
}

TEST_F(LocalNetworkTest, KillClosesBothEndsWithPeerLostAndRefusesNewStreamsUntilServed) {
  const auto stream = Open();
  executor_.RunReady();
  network_.Kill("server");
  executor_.RunReady();
  ASSERT_EQ(closed_.size(), 1u);
  EXPECT_EQ(closed_[0].reason(), Reason::kPeerLost);
  ASSERT_EQ(service_.closed.size(), 1u);
  EXPECT_EQ(service_.closed[0].reason(), Reason::kPeerLost);

  const auto refused = Open();
  executor_.RunReady();
  ASSERT_EQ(closed_.size(), 2u);
  EXPECT_EQ(closed_[1].reason(), Reason::kPeerLost);

  network_.Serve<DecodeProtocol>("server", executor_, service_);
  const auto again = Open();
  executor_.RunReady();
  EXPECT_EQ(service_.accepts, 2);
}

TEST_F(LocalNetworkTest, StallDeliversNothingAndClosesNothingUntilResume) {
  const auto stream = Open();
  executor_.RunReady();
  network_.Stall("server");
  stream->Send(peer::Attach{1, "s", 7});
  const auto unseen = Open();
  executor_.RunReady();
  EXPECT_TRUE(service_.received.empty());
  EXPECT_EQ(service_.accepts, 1);
  EXPECT_TRUE(closed_.empty());
  network_.Resume("server");
  executor_.RunReady();
  EXPECT_THAT(service_.received, ElementsAre(7));
  EXPECT_EQ(service_.accepts, 2);
}

TEST_F(LocalNetworkTest, StallBetweenLeavesOtherPeersAlone) {
  network_.StallBetween("client", "elsewhere");
  const auto stream = Open();
  stream->Send(peer::Attach{1, "s", 1});
  executor_.RunReady();
  EXPECT_THAT(received_, ElementsAre(1));
}

TEST_F(LocalNetworkTest, PeerThatStopsReadingClosesTheStreamAtTheBound) {
  const auto stream = Open();
  executor_.RunReady();
  network_.Stall("server");
  for (size_t i = 0; i <= peer::kMaxPendingSends; ++i) stream->Send(peer::Attach{1, "s", 0});
  network_.Resume("server");
  executor_.RunReady();
  ASSERT_EQ(closed_.size(), 1u);
  EXPECT_EQ(closed_[0].code(), Code::kResourceExhausted);
}

TEST_F(LocalNetworkTest, HandlerMayDestroyItsOwnStream) {
  std::unique_ptr<peer::ClientStream<DecodeProtocol>> stream;
  stream = dialer_->Open("server", {[&](DecodeProtocol::Down) { stream.reset(); }, [](Status) { FAIL(); }});
  stream->Send(peer::Attach{1, "s", 0});
  stream->Send(peer::Attach{1, "s", 1});
  executor_.RunReady();
  EXPECT_EQ(stream, nullptr);
}

TEST_F(LocalNetworkTest, WorksBetweenEventLoops) {
  EventLoop server_loop("server");
  EventLoop client_loop("client");
  EchoService service;
  network_.Serve<DecodeProtocol>("real", server_loop, service);
  const auto dialer = network_.MakeDialer<DecodeProtocol>(client_loop, "real-client");
  std::mutex mutex;
  std::condition_variable wake;
  uint32_t count = 0;
  std::unique_ptr<peer::ClientStream<DecodeProtocol>> stream;
  client_loop.Post([&] {
    stream = dialer->Open("real", {[&](DecodeProtocol::Down) {
                                     std::lock_guard lock(mutex);
                                     ++count;
                                     wake.notify_one();
                                   },
                                   [](Status) {}});
    for (uint32_t i = 0; i < 200; ++i) stream->Send(peer::Attach{1, "s", i});
  });
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(wake.wait_for(lock, std::chrono::seconds(30), [&] { return count == 200; }));
  }
  client_loop.Post([&] { stream.reset(); });
  client_loop.Stop();
  server_loop.Post([&] { service.stream.reset(); });
  server_loop.Stop();
}

TEST(FakeBackendTest, LogitsAreEqualForAnyChunkingAndChangeWithAnyKvByte) {
  const std::vector<request::TokenId> prompt = FakePrompt(150, 3);
  const std::vector<kv::BlockIndex> blocks = {5, 2, 9};
  const auto run = [&](uint32_t chunk, int flip) {
    FakeBackend backend;
    for (uint32_t done = 0; done < prompt.size(); done += chunk) {
      const auto count = std::min<uint32_t>(chunk, static_cast<uint32_t>(prompt.size()) - done);
      if (flip >= 0 && done + count == prompt.size()) {
        backend.kv_memory()[2 * backend.layout().block_bytes() + static_cast<size_t>(flip)] ^= std::byte{1};
      }
      const engine::SequenceStep step{std::span(prompt).subspan(done, count), done, blocks, true};
      EXPECT_TRUE(backend.Step({&step, 1}, nullptr).ok());
    }
    return std::vector<float>(backend.logits()[0].begin(), backend.logits()[0].end());
  };
  const std::vector<float> expected = run(150, -1);
  EXPECT_EQ(run(1, -1), expected);
  EXPECT_EQ(run(64, -1), expected);
  EXPECT_EQ(run(77, -1), expected);
  EXPECT_NE(run(149, 0), expected);
  EXPECT_NE(run(149, 3071 - 8), expected);
}

TEST(FakeBackendTest, RefusesTwoSequencesThatWriteOneBlock) {
  FakeBackend backend;
  const std::vector<request::TokenId> prompt = FakePrompt(3, 1);
  const std::vector<kv::BlockIndex> blocks = {4};
  const std::vector<engine::SequenceStep> steps = {{prompt, 0, blocks, true}, {prompt, 0, blocks, true}};
  EXPECT_EQ(backend.Step(steps, nullptr).code(), Code::kInvalidArgument);
  EXPECT_EQ(backend.steps(), 0u);
}

}  // namespace
}  // namespace millrace::support
