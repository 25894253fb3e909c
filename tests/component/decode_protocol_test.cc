// A decode worker against peers that break the protocol or come at the wrong time: refused by name, nothing leaks, the
// others go on.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "common/base/crc32c.h"
#include "tests/component/handoff_cluster.h"
#include "tests/support/oracle.h"

namespace millrace::component {
namespace {

constexpr uint32_t kTokens = 100;

// A prefill worker by hand, whose KV is that of a FakeBackend of its own.
class Sender {
 public:
  explicit Sender(HandoffCluster& cluster)
      : cluster_(cluster),
        executor_(cluster.time().Add("sender")),
        transport_(cluster.fabric().MakeTransport("sender")),
        region_(*transport_->Register(backend_.kv_memory())),
        dialer_(cluster.network().MakeDialer<peer::HandoffProtocol>(executor_, "sender")) {
    generation = MakeGeneration(kTokens, 6);
    const engine::SequenceStep step{generation.tokens, 0, pages_, true};
    EXPECT_TRUE(backend_.Step({&step, 1}, nullptr).ok());
    first_token = support::OracleTokens(generation).front();
    for (uint32_t layer = 0; layer < 3; ++layer) {
      for (uint32_t block = 0; block < 2; ++block) blocks.push_back(Describe(layer, block));
    }
  }

  peer::Reserve Reserve() {
    peer::Reserve reserve;
    reserve.incarnation = 200;
    reserve.session = "session";
    reserve.generation = generation;
    reserve.layout_digest = backend_.layout().Digest();
    reserve.source = {transport_->address(), region_->descriptor()};
    reserve.source_incarnation = 1;
    return reserve;
  }
  void Open() {
    stream = dialer_->Open("decode-0", {[this](peer::HandoffProtocol::Down message) {
                                          reserved |= std::holds_alternative<peer::Reserved>(message);
                                          complete |= std::holds_alternative<peer::HandoffComplete>(message);
                                        },
                                        [this](Status status) { closed = std::move(status); }});
  }
  void Send(peer::HandoffProtocol::Up message) {
    stream->Send(std::move(message));
    cluster_.time().RunReady();
  }

  request::Generation generation;
  request::TokenId first_token = 0;
  std::vector<peer::LayerBlock> blocks;
  std::unique_ptr<peer::ClientStream<peer::HandoffProtocol>> stream;
  bool reserved = false;
  bool complete = false;
  std::optional<Status> closed;

 private:
  peer::LayerBlock Describe(uint32_t layer, uint32_t block) {
    const kv::Layout& layout = backend_.layout();
    const uint64_t offset = pages_[block] * layout.block_bytes() + layout.layer_offset(layer);
    const auto length = static_cast<uint32_t>((block == 0 ? 64 : kTokens - 64) * layout.row_bytes());
    return {layer, block, offset, length, Crc32c(backend_.kv_memory().data() + offset, length)};
  }

  HandoffCluster& cluster_;
  support::VirtualExecutor& executor_;
  support::FakeBackend backend_;
  const std::vector<kv::BlockIndex> pages_ = {5, 3};
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<transfer::Region> region_;
  std::unique_ptr<peer::Dialer<peer::HandoffProtocol>> dialer_;
};

class DecodeProtocolTest : public ::testing::Test {
 protected:
  struct Reader {
    std::unique_ptr<peer::ClientStream<peer::DecodeProtocol>> stream;
    std::vector<request::TokenId> tokens;
    std::optional<request::FinishReason> finish;
    std::optional<Status> closed;
  };

  std::unique_ptr<Reader> Attach(const peer::Attach& attach) {
    auto reader = std::make_unique<Reader>();
    reader->stream = cluster_.decode_dialer().Open(
        "decode-0", {[r = reader.get()](peer::DecodeProtocol::Down message) {
                       if (auto* chunk = std::get_if<peer::TokenChunk>(&message)) {
                         r->tokens.insert(r->tokens.end(), chunk->tokens.begin(), chunk->tokens.end());
                       } else if (auto* finished = std::get_if<peer::DecodeFinished>(&message)) {
                         r->finish = finished->finish;
                       }
                     },
                     [r = reader.get()](Status status) { r->closed = std::move(status); }});
    reader->stream->Send(attach);
    cluster_.time().RunReady();
    return reader;
  }
  void HandOver() {
    sender_.Open();
    sender_.Send(sender_.Reserve());
    sender_.Send(peer::LayerBlocks{sender_.blocks});
    sender_.Send(peer::HandoffEnd{sender_.first_token, 0});
    ASSERT_TRUE(sender_.complete);
  }
  void ExpectRefused(Code code) {
    cluster_.time().RunReady();
    ASSERT_TRUE(sender_.closed.has_value());
    EXPECT_EQ(sender_.closed->code(), code) << sender_.closed->ToString();
    EXPECT_EQ(cluster_.decode().Metric("millrace_decode_held_blocks"), 0);
    EXPECT_EQ(cluster_.Leaks(), "");
  }

  HandoffCluster cluster_{{}};
  Sender sender_{cluster_};
};

TEST_F(DecodeProtocolTest, HandoverByHandGivesTheOraclesAnswer) {
  HandOver();
  const auto reader = Attach({200, "session", 0});
  EXPECT_EQ(reader->tokens, support::OracleTokens(sender_.generation));
  EXPECT_EQ(reader->finish, request::FinishReason::kLength);
  EXPECT_TRUE(reader->closed.has_value() && reader->closed->ok());
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(DecodeProtocolTest, BlocksInAnyOrderAndManyMessages) {
  sender_.Open();
  sender_.Send(sender_.Reserve());
  std::reverse(sender_.blocks.begin(), sender_.blocks.end());
  for (const peer::LayerBlock& block : sender_.blocks) sender_.Send(peer::LayerBlocks{{block}});
  sender_.Send(peer::HandoffEnd{sender_.first_token, 0});
  EXPECT_TRUE(sender_.complete);
  EXPECT_EQ(Attach({200, "session", 2})->tokens.size(), 4u);
}

TEST_F(DecodeProtocolTest, MalformedLayerBlocksEndTheHandover) {
  const std::vector<std::function<void(peer::LayerBlock&)>> faults = {
      [](peer::LayerBlock& block) { block.layer = 3; },      [](peer::LayerBlock& block) { block.block = 2; },
      [](peer::LayerBlock& block) { block.length += 16; },   [](peer::LayerBlock& block) { block.length = 0; },
      [](peer::LayerBlock& block) { block.layer = ~0u; },    [](peer::LayerBlock& block) { block.block = ~0u; },
      [](peer::LayerBlock& block) { block.offset = ~0ull; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(i);
    HandoffCluster cluster({});
    Sender sender(cluster);
    sender.Open();
    sender.Send(sender.Reserve());
    faults[i](sender.blocks.front());
    sender.Send(peer::LayerBlocks{sender.blocks});
    ASSERT_TRUE(sender.closed.has_value());
    EXPECT_FALSE(sender.closed->ok());
    EXPECT_EQ(cluster.decode().Metric("millrace_decode_held_blocks"), 0);
    EXPECT_EQ(cluster.Leaks(), "");
  }
}

TEST_F(DecodeProtocolTest, BlockAnnouncedTwiceEndsTheHandover) {
  sender_.Open();
  sender_.Send(sender_.Reserve());
  sender_.Send(peer::LayerBlocks{{sender_.blocks[0], sender_.blocks[0]}});
  ExpectRefused(Code::kInvalidArgument);
}

TEST_F(DecodeProtocolTest, EndBeforeAllBlocksEndsTheHandover) {
  sender_.Open();
  sender_.Send(sender_.Reserve());
  sender_.Send(peer::LayerBlocks{{sender_.blocks[0]}});
  sender_.Send(peer::HandoffEnd{1, 0});
  ExpectRefused(Code::kInvalidArgument);
}

TEST_F(DecodeProtocolTest, FirstTokenOutsideTheVocabularyEndsTheHandover) {
  sender_.Open();
  sender_.Send(sender_.Reserve());
  sender_.Send(peer::LayerBlocks{sender_.blocks});
  sender_.Send(peer::HandoffEnd{101, 0});
  ExpectRefused(Code::kInvalidArgument);
}

TEST_F(DecodeProtocolTest, BlocksBeforeReserveEndTheStream) {
  sender_.Open();
  sender_.Send(peer::LayerBlocks{sender_.blocks});
  ExpectRefused(Code::kInvalidArgument);
}

TEST_F(DecodeProtocolTest, SecondReserveEndsTheHandover) {
  sender_.Open();
  sender_.Send(sender_.Reserve());
  sender_.Send(sender_.Reserve());
  ExpectRefused(Code::kInvalidArgument);
}

TEST_F(DecodeProtocolTest, SessionInUseIsRefusedAndTheOtherGoesOn) {
  HandOver();
  Sender other(cluster_);
  other.Open();
  other.Send(other.Reserve());
  ASSERT_TRUE(other.closed.has_value());
  EXPECT_EQ(other.closed->code(), Code::kInvalidArgument);
  EXPECT_EQ(Attach({200, "session", 0})->tokens, support::OracleTokens(sender_.generation));
}

TEST_F(DecodeProtocolTest, RequestThatBreaksItsOwnRulesIsRefused) {
  const std::vector<std::function<void(request::Generation&)>> faults = {
      [](request::Generation& g) { g.tokens[3] = 101; },
      [](request::Generation& g) { g.tokens[3] = -1; },
      [](request::Generation& g) { g.tokens.clear(); },
      [](request::Generation& g) { g.prompt_tokens = 101; },
      [](request::Generation& g) { g.prompt_tokens = 0; },
      [](request::Generation& g) { g.max_new_tokens = 0; },
      [](request::Generation& g) { g.max_new_tokens = ~0u; },
      [](request::Generation& g) { g.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); },
      [](request::Generation& g) { g.sampling.logit_bias = {{500, 1.0f}}; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    SCOPED_TRACE(i);
    HandoffCluster cluster({});
    Sender sender(cluster);
    faults[i](sender.generation);
    sender.Open();
    sender.Send(sender.Reserve());
    ASSERT_TRUE(sender.closed.has_value());
    EXPECT_EQ(sender.closed->code(), Code::kInvalidArgument);
    EXPECT_EQ(cluster.Leaks(), "");
  }
}

TEST_F(DecodeProtocolTest, StreamThatSaysNothingIsClosed) {
  sender_.Open();
  const auto silent = cluster_.decode_dialer().Open("decode-0", {});
  cluster_.time().Advance(Seconds(2));
  ExpectRefused(Code::kDeadlineExceeded);
}

TEST_F(DecodeProtocolTest, AttachToNoSessionOrAnotherLifeIsRefused) {
  EXPECT_EQ(Attach({200, "nothing", 0})->closed->code(), Code::kNotFound);
  EXPECT_EQ(Attach({199, "nothing", 0})->closed->reason(), Reason::kPeerLost);
}

TEST_F(DecodeProtocolTest, NewestGatewayStreamOfASessionWins) {
  cluster_.decode().engine().set_stopped(true);
  HandOver();
  const auto first = Attach({200, "session", 0});
  const auto second = Attach({200, "session", 0});
  EXPECT_EQ(first->closed->code(), Code::kAborted);
  cluster_.decode().engine().set_stopped(false);
  cluster_.time().RunReady();
  EXPECT_EQ(second->tokens, support::OracleTokens(sender_.generation));
}

TEST_F(DecodeProtocolTest, AnswerWaitsForItsGatewayUntilTheAttachDeadline) {
  HandOver();
  cluster_.time().Advance(Seconds(5));
  EXPECT_EQ(cluster_.decode().Metric("millrace_decode_held_blocks"), 0) << "a finished answer needs no KV";
  EXPECT_EQ(Attach({200, "session", 0})->tokens, support::OracleTokens(sender_.generation));
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(DecodeProtocolTest, RunningSessionWithoutAGatewayIsFreedAtTheAttachDeadline) {
  cluster_.decode().engine().set_stopped(true);
  HandOver();
  cluster_.time().Advance(Seconds(11));
  EXPECT_EQ(Attach({200, "session", 0})->closed->reason(), Reason::kDeadline);  // its last step still runs
  cluster_.decode().engine().set_stopped(false);
  cluster_.time().RunReady();
  EXPECT_EQ(cluster_.decode().Metric("millrace_decode_held_blocks"), 0);
  EXPECT_EQ(Attach({200, "session", 0})->closed->code(), Code::kNotFound);
  EXPECT_EQ(cluster_.decode().Count("millrace_decode_ended_total", {{"cause", "attach_timeout"}}), 1);
  EXPECT_EQ(cluster_.Leaks(), "");
}

TEST_F(DecodeProtocolTest, GatewayThatAttachedDuringTheHandoverHearsWhyItFailed) {
  sender_.Open();
  sender_.Send(sender_.Reserve());
  const auto reader = Attach({200, "session", 0});
  EXPECT_FALSE(reader->closed.has_value());
  sender_.stream = nullptr;
  cluster_.time().RunReady();
  ASSERT_TRUE(reader->closed.has_value());
  EXPECT_EQ(reader->closed->reason(), Reason::kPeerLost);
  EXPECT_EQ(cluster_.Leaks(), "");
}

}  // namespace
}  // namespace millrace::component
