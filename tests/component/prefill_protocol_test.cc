// A prefill worker against gateways that break the protocol or stop in the middle.

#include <gtest/gtest.h>

#include <optional>

#include "tests/component/handoff_cluster.h"
#include "tests/support/oracle.h"

namespace millrace::component {
namespace {

class PrefillProtocolTest : public ::testing::Test {
 protected:
  void Open() {
    stream_ = cluster_.prefill_dialer().Open("prefill-0",
                                             {[this](peer::PrefillProtocol::Down message) {
                                                accepted_ |= std::holds_alternative<peer::PrefillAccepted>(message);
                                                heartbeats_ += std::holds_alternative<peer::Heartbeat>(message);
                                              },
                                              [this](Status status) { closed_ = std::move(status); }});
  }
  void Send(const request::Generation& generation, cluster::Incarnation incarnation = 100) {
    stream_->Send(peer::PrefillRequest{incarnation, generation, {}});
    cluster_.time().RunReady();
  }

  HandoffCluster cluster_{{}};
  std::unique_ptr<peer::ClientStream<peer::PrefillProtocol>> stream_;
  bool accepted_ = false;
  int heartbeats_ = 0;
  std::optional<Status> closed_;
};

TEST_F(PrefillProtocolTest, AnotherIncarnationIsRefusedAsALostPeer) {
  Open();
  Send(MakeGeneration(10, 5), 99);
  EXPECT_EQ(closed_->reason(), Reason::kPeerLost);
  EXPECT_FALSE(accepted_);
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(PrefillProtocolTest, SecondRequestOnAStreamEndsIt) {
  cluster_.prefill().engine().set_stopped(true);
  Open();
  Send(MakeGeneration(10, 5));
  EXPECT_TRUE(accepted_);
  Send(MakeGeneration(10, 5));
  EXPECT_EQ(closed_->code(), Code::kInvalidArgument);
  cluster_.prefill().engine().set_stopped(false);
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(PrefillProtocolTest, RequestWithoutRoomForATokenIsRefused) {
  Open();
  request::Generation generation = MakeGeneration(10, 5);
  generation.tokens.resize(15, 1);
  Send(generation);
  EXPECT_EQ(closed_->code(), Code::kInvalidArgument);
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(PrefillProtocolTest, StreamWithoutARequestIsClosed) {
  Open();
  cluster_.time().Advance(Seconds(2));
  EXPECT_EQ(closed_->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(PrefillProtocolTest, HeartbeatsComeWhileARequestWaits) {
  cluster_.prefill().engine().set_stopped(true);
  Open();
  Send(MakeGeneration(10, 5));
  cluster_.time().Advance(Seconds(2));
  EXPECT_GE(heartbeats_, 7);
  stream_ = nullptr;
  cluster_.prefill().engine().set_stopped(false);
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(PrefillProtocolTest, LongPromptDoesNotHoldAShortOneBack) {
  cluster_.prefill().engine().set_stopped(true);
  const auto longer = cluster_.Request(MakeGeneration(1500, 5, 0, 1));
  cluster_.time().RunReady();
  const auto shorter = cluster_.Request(MakeGeneration(40, 5, 0, 2));
  cluster_.time().RunReady();
  cluster_.prefill().engine().set_stopped(false);
  ASSERT_TRUE(cluster_.RunAll({shorter.get()}));
  EXPECT_TRUE(longer->generated().empty());
  ASSERT_TRUE(cluster_.RunAll({longer.get()}));
  EXPECT_EQ(longer->generated(), support::OracleTokens(MakeGeneration(1500, 5, 0, 1)));
  EXPECT_EQ(cluster_.Leaks(), "");
}

}  // namespace
}  // namespace millrace::component
