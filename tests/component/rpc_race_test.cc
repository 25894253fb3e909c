// Streams opened, closed, cancelled, destroyed and refused at random from both ends at once. What must hold: no
// memory error or leak (sanitizer builds), on_closed at most once and last, nothing after destruction, nothing left
// open, and never an OK that nobody said.
#include <atomic>
#include <deque>
#include <memory>

#include "common/base/random.h"
#include "tests/component/rpc_fixture.h"

namespace millrace::rpc {
namespace {

using peer::HandoffProtocol;
using peer::Heartbeat;

struct Tally {
  std::atomic<int> closed{0}, destroyed_first{0}, wrong{0}, half_closes_sent{0}, half_closes_seen{0};
};

// One end that acts at random on every event. Belongs to one loop; deletes its stream, never itself.
template <class In, class Out>
class RandomEnd {
 public:
  RandomEnd(uint64_t seed, bool is_client, Tally& tally) : rng_(seed), is_client_(is_client), tally_(tally) {}
  ~RandomEnd() { Drop(); }

  void Own(std::unique_ptr<peer::Stream<Out>> stream) { stream_ = std::move(stream); }
  peer::StreamHandler<In> Handler() {
    return {.on_message = [this](In) { OnEvent(); }, .on_closed = [this](Status status) { OnClosed(status); }};
  }

  void Act() {
    if (stream_ == nullptr) return;
    switch (rng_.Below(12)) {
      case 0:
        Drop();
        return;
      case 1:
        stream_->Close(Status(Code::kAborted, Reason::kKvEvicted, "random"));
        if (rng_.Below(2) == 0) Drop();
        return;
      case 2:
        if (is_client_ && !half_closed_) tally_.half_closes_sent.fetch_add(1);
        half_closed_ = true;
        stream_->Close(OkStatus());
        if (rng_.Below(4) == 0) Drop();
        return;
      default:
        for (uint64_t i = rng_.Below(4); i > 0; --i) stream_->Send(Heartbeat{.progress = i});
    }
  }
  void Drop() {
    if (stream_ != nullptr && !closed_) tally_.destroyed_first.fetch_add(1);
    stream_.reset();
  }

 private:
  void OnEvent() {
    if (stream_ == nullptr || closed_) tally_.wrong.fetch_add(1);
    Act();
  }
  void OnClosed(const Status& status) {
    if (stream_ == nullptr || closed_) tally_.wrong.fetch_add(1);
    closed_ = true;
    tally_.closed.fetch_add(1);
    if (!is_client_ && status.ok() && !half_closed_) tally_.half_closes_seen.fetch_add(1);
    if (rng_.Below(2) == 0) stream_.reset();
  }

  Rng rng_;
  const bool is_client_;
  Tally& tally_;
  std::unique_ptr<peer::Stream<Out>> stream_;
  bool closed_ = false;
  bool half_closed_ = false;
};

using RandomClient = RandomEnd<HandoffProtocol::Down, HandoffProtocol::Up>;
using RandomServer = RandomEnd<HandoffProtocol::Up, HandoffProtocol::Down>;

class RandomService final : public peer::Service<HandoffProtocol> {
 public:
  explicit RandomService(Tally& tally) : tally_(tally) {}
  peer::StreamHandler<HandoffProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<HandoffProtocol>> stream) override {
    ends.push_back(std::make_unique<RandomServer>(ends.size() + 1'000'000, false, tally_));
    ends.back()->Own(std::move(stream));
    auto handler = ends.back()->Handler();
    ends.back()->Act();
    return handler;
  }
  std::deque<std::unique_ptr<RandomServer>> ends;

 private:
  Tally& tally_;
};

struct Arena {
  Tally client_tally, server_tally;
  EventLoop server_loop{"server"};
  EventLoop client_loop{"client"};
  RandomService service{server_tally};
  Server server;
  std::string address;
  std::unique_ptr<peer::Dialer<HandoffProtocol>> dialer = MakeDialer<HandoffProtocol>(client_loop);
  std::deque<std::unique_ptr<RandomClient>> clients;  // belongs to client_loop

  Arena() {
    server.AddService<HandoffProtocol>(service, server_loop);
    address = "127.0.0.1:" + std::to_string(server.Start("127.0.0.1", 0).value());
  }
  void Open(uint64_t seed) {
    clients.push_back(std::make_unique<RandomClient>(seed, true, client_tally));
    RandomClient& client = *clients.back();
    client.Own(dialer->Open(address, client.Handler()));
    client.Act();
  }
  // One random step of everything open, each end on its own loop.
  void Step(uint64_t seed) {
    client_loop.Post([this, seed] {
      Rng rng(seed);
      for (int i = 0; i < 20; ++i) clients[rng.Below(clients.size())]->Act();
    });
    server_loop.Post([this, seed] {
      Rng rng(seed + 1);
      for (int i = 0; i < 20 && !service.ends.empty(); ++i) service.ends[rng.Below(service.ends.size())]->Act();
    });
  }
};

TEST(RpcRace, ThousandsOfStreamsEndExactlyOnce) {
  constexpr uint64_t kStreams = 3000;
  Arena arena;
  for (uint64_t i = 0; i < kStreams; i += 10) {
    RunOn(arena.client_loop, [&] {
      for (uint64_t j = i; j < i + 10; ++j) arena.Open(j);
    });
    arena.Step(i);
  }
  // Whoever still waits for the other end goes.
  RunOn(arena.client_loop, [&] {
    for (auto& client : arena.clients) client->Drop();
  });
  ASSERT_TRUE(Eventually(arena.server_loop, [&] {
    for (auto& end : arena.service.ends) end->Drop();  // also those accepted late
    return arena.server.open_streams() == 0;
  }));
  EXPECT_EQ(arena.client_tally.closed + arena.client_tally.destroyed_first, static_cast<int>(kStreams));
  EXPECT_EQ(arena.client_tally.wrong, 0);
  EXPECT_EQ(arena.server_tally.wrong, 0);
  EXPECT_LE(arena.server_tally.half_closes_seen, arena.client_tally.half_closes_sent);
  EXPECT_GT(arena.client_tally.closed, 0);
  EXPECT_GT(arena.server_tally.closed, 0);
  EXPECT_GT(arena.client_tally.destroyed_first, 0);
}

TEST(RpcRace, ServerShutDownAmidTraffic) {
  for (uint64_t round = 0; round < 8; ++round) {
    Arena arena;
    for (uint64_t i = 0; i < 20; ++i) {
      RunOn(arena.client_loop, [&] {
        for (uint64_t j = 0; j < 10; ++j) arena.Open(round * 1000 + i * 10 + j);
      });
      arena.Step(round * 100 + i);
    }
    arena.server.Shutdown(round % 2 == 0 ? Duration(0) : Milliseconds(5));
    EXPECT_EQ(arena.server.open_streams(), 0u);
    // The loops go while streams are still there, and calls of dialers that are gone end later on gRPC's threads.
    arena.server_loop.Stop();
    arena.client_loop.Stop();
    EXPECT_EQ(arena.client_tally.wrong + arena.server_tally.wrong, 0);
  }
}

// A client whose connection breaks never looks like one that said it sent all.
TEST(RpcRace, CancelledStreamsNeverLookFinished) {
  EventLoop server_loop("server");
  EventLoop client_loop("client");
  RecordingService<HandoffProtocol> service;
  Server server;
  server.AddService<HandoffProtocol>(service, server_loop);
  const std::string address = "127.0.0.1:" + std::to_string(server.Start("127.0.0.1", 0).value());
  const auto dialer = MakeDialer<HandoffProtocol>(client_loop);
  constexpr int kStreams = 1000;
  for (int i = 0; i < kStreams; ++i) {
    ClientEnd<HandoffProtocol> client;
    RunOn(client_loop, [&] {
      client.stream = dialer->Open(address, client.Handler());
      client.stream->Send(Heartbeat{});
    });
    auto* served = *service.accepted.Take();
    if (i % 2 == 0) {
      ASSERT_TRUE(served->messages.Take().has_value());
    }
    RunOn(client_loop, [&] { client.stream.reset(); });
    const auto status = served->closed.Take();
    ASSERT_TRUE(status.has_value());
    ASSERT_EQ(status->code(), Code::kCancelled) << i;
  }
  RunOn(server_loop, [&] { service.DropAll(); });
}

}  // namespace
}  // namespace millrace::rpc
