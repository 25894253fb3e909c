#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>
#include <thread>

#include "tests/component/rpc_fixture.h"

namespace millrace::rpc {
namespace {

using peer::Attach;
using peer::DecodeProtocol;
using peer::Heartbeat;
using peer::TokenChunk;
using ::testing::HasSubstr;
using Streams = RpcTest<peer::HandoffProtocol>;
using Tokens = RpcTest<peer::DecodeProtocol>;

uint64_t ProgressOf(const auto& message) { return std::get<Heartbeat>(message).progress; }

TEST_F(Streams, MessagesArriveInOrderBothWays) {
  constexpr uint64_t kMessages = 1000;
  auto& client = Open();
  RunOn(client_loop, [&] {
    for (uint64_t i = 0; i < kMessages; ++i) client.stream->Send(Heartbeat{.progress = i});
  });
  auto& served = **service.accepted.Take();
  RunOn(server_loop, [&] {
    for (uint64_t i = 0; i < kMessages; ++i) served.stream->Send(Heartbeat{.progress = i});
  });
  for (uint64_t i = 0; i < kMessages; ++i) {
    const auto up = served.messages.Take();
    ASSERT_TRUE(up.has_value());
    ASSERT_EQ(ProgressOf(*up), i);
    const auto down = client.messages.Take();
    ASSERT_TRUE(down.has_value());
    ASSERT_EQ(ProgressOf(*down), i);
  }
}

TEST_F(Streams, CloseDeliversWhatWasSentBeforeAndTheWholeStatus) {
  service.on_accept = [](auto& end) {
    end.on_message = [&end](const auto&) {
      for (uint64_t i = 0; i < 100; ++i) end.stream->Send(Heartbeat{.progress = i});
      end.stream->Close(Status(Code::kResourceExhausted, Reason::kOverloaded, "no slot, \xc3\xa9t\xc3\xa9 \xff")
                            .WithRetryAfterMs(250)
                            .WithParam("messages[2].content"));
      end.stream->Send(Heartbeat{.progress = 1000});
      end.stream.reset();
    };
  };
  auto& client = Open();
  Send(client, Heartbeat{});
  const auto status = client.closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), Code::kResourceExhausted);
  EXPECT_EQ(status->reason(), Reason::kOverloaded);
  EXPECT_EQ(status->message(), "no slot, \xc3\xa9t\xc3\xa9 ?");
  EXPECT_EQ(status->retry_after_ms(), 250u);
  EXPECT_EQ(status->param(), "messages[2].content");
  EXPECT_EQ(client.messages.size(), 100u);
}

TEST_F(Streams, ALongErrorMessageIsCutNotLost) {
  service.on_accept = [](auto& end) {
    end.stream->Close(Status(Code::kInternal, Reason::kKvCorrupt, std::string(100'000, '\n')));
  };
  auto& client = Open();
  const auto status = client.closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), Code::kInternal);
  EXPECT_EQ(status->reason(), Reason::kKvCorrupt);
  EXPECT_EQ(status->message().size(), 1024u);
}

TEST_F(Streams, ServerEndsWithOk) {
  auto& client = Open();
  Send(client, Heartbeat{});
  auto& served = **service.accepted.Take();
  ASSERT_TRUE(served.messages.Take().has_value());
  RunOn(server_loop, [&] { served.stream->Close(OkStatus()); });
  EXPECT_EQ(client.closed.Take()->ToString(), "OK");
  EXPECT_EQ(served.closed.Take()->ToString(), "OK");
}

TEST_F(Streams, ClientThatSentAllStillReceives) {
  auto& client = Open();
  RunOn(client_loop, [&] {
    for (uint64_t i = 0; i < 10; ++i) client.stream->Send(Heartbeat{.progress = i});
    client.stream->Close(OkStatus());
    client.stream->Send(Heartbeat{.progress = 99});
  });
  auto& served = **service.accepted.Take();
  EXPECT_EQ(served.closed.Take()->ToString(), "OK");
  EXPECT_EQ(served.messages.size(), 10u);
  Send(served, Heartbeat{.progress = 7});
  EXPECT_EQ(ProgressOf(*client.messages.Take()), 7u);
  EXPECT_EQ(client.closed.size(), 0u);
  RunOn(server_loop, [&] { served.stream->Close(Status(Code::kUnavailable, Reason::kDraining, "bye")); });
  EXPECT_EQ(client.closed.Take()->reason(), Reason::kDraining);
  EXPECT_EQ(served.closed.size(), 0u);  // it had its one
}

TEST_F(Streams, CancellingReachesTheServerAndReportsItsReasonLocally) {
  auto& client = Open();
  Send(client, Heartbeat{});
  auto& served = **service.accepted.Take();
  ASSERT_TRUE(served.messages.Take().has_value());
  RunOn(client_loop, [&] { client.stream->Close(Status(Code::kDeadlineExceeded, Reason::kDeadline, "too late")); });
  EXPECT_EQ(client.closed.Take()->reason(), Reason::kDeadline);
  const auto status = served.closed.Take();
  EXPECT_EQ(status->code(), Code::kCancelled);
  EXPECT_EQ(status->reason(), Reason::kPeerLost);
}

TEST_F(Streams, DestroyingTheClientEndCancelsAndCallsNothing) {
  auto& client = Open();
  Send(client, Heartbeat{});
  auto& served = **service.accepted.Take();
  RunOn(client_loop, [&] { client.stream.reset(); });
  EXPECT_EQ(served.closed.Take()->code(), Code::kCancelled);
  EXPECT_EQ(client.closed.size(), 0u);
}

TEST_F(Streams, DestroyingTheServerEndEndsWithCancelled) {
  auto& client = Open();
  auto& served = **service.accepted.Take();
  RunOn(server_loop, [&] { served.stream.reset(); });
  EXPECT_EQ(client.closed.Take()->code(), Code::kCancelled);
  EXPECT_EQ(served.closed.size(), 0u);
}

TEST_F(Streams, HandlersMayDestroyTheirStream) {
  service.on_accept = [](auto& end) {
    end.on_message = [&end](const auto& message) {
      if (ProgressOf(message) == 0) end.stream->Send(Heartbeat{});
      if (ProgressOf(message) == 1) end.stream.reset();
    };
  };
  auto& first = Open();
  RunOn(client_loop, [&] { first.on_message = [&](const auto&) { first.stream.reset(); }; });
  Send(first, Heartbeat{.progress = 0});
  EXPECT_TRUE(first.messages.Take().has_value());

  auto& second = Open();
  RunOn(client_loop, [&] { second.on_closed = [&](const auto&) { second.stream.reset(); }; });
  Send(second, Heartbeat{.progress = 1});
  EXPECT_EQ(second.closed.Take()->code(), Code::kCancelled);
  EXPECT_TRUE(Eventually(server_loop, [&] { return server->open_streams() == 0; }));
}

TEST_F(Streams, AcceptMayRefuseByDroppingTheStream) {
  service.on_accept = [](auto& end) {
    end.stream->Close(Status(Code::kUnavailable, Reason::kDraining, "this worker drains"));
    end.stream.reset();
  };
  EXPECT_EQ(Open().closed.Take()->reason(), Reason::kDraining);
}

// A reader that takes nothing stops the sender's queue from being emptied, not the other way round.
TEST_F(Tokens, StalledReaderFillsTheSendersQueueAndIsClosed) {
  std::promise<void> release;
  auto& client = Open();
  RunOn(client_loop,
        [&] { client.on_message = [released = release.get_future().share()](const auto&) { released.wait(); }; });
  auto& served = **service.accepted.Take();
  const TokenChunk chunk{.tokens = std::vector<request::TokenId>(16384, 100'000)};
  size_t sent = 0;
  RunOn(server_loop, [&] {
    for (; sent < 512; ++sent) served.stream->Send(chunk);
  });
  // What the transport buffers is bounded: most of it waits here.
  size_t waiting = 0;
  RunOn(server_loop, [&] { waiting = served.stream->pending_sends(); });
  EXPECT_GT(waiting, 400u);
  RunOn(server_loop, [&] {
    for (; sent < 4096 && served.stream->pending_sends() > 0; ++sent) served.stream->Send(chunk);
  });
  EXPECT_LT(sent, 512 + peer::kMaxPendingSends);
  const auto status = served.closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), Code::kResourceExhausted);
  release.set_value();
  ASSERT_TRUE(client.closed.Take().has_value());
  EXPECT_LT(client.messages.size(), 100u);
}

TEST_F(Tokens, ReaderThatCatchesUpGetsEverything) {
  std::promise<void> release;
  auto& client = Open();
  RunOn(client_loop,
        [&] { client.on_message = [released = release.get_future().share()](const auto&) { released.wait(); }; });
  auto& served = **service.accepted.Take();
  constexpr uint32_t kChunks = 300;
  RunOn(server_loop, [&] {
    for (uint32_t i = 0; i < kChunks; ++i) {
      served.stream->Send(TokenChunk{.first_index = i, .tokens = std::vector<request::TokenId>(8192, 100'000)});
    }
    served.stream->Close(OkStatus());
    served.stream.reset();
  });
  release.set_value();
  for (uint32_t i = 0; i < kChunks; ++i) {
    const auto message = client.messages.Take();
    ASSERT_TRUE(message.has_value());
    ASSERT_EQ(std::get<TokenChunk>(*message).first_index, i);
  }
  EXPECT_EQ(client.closed.Take()->ToString(), "OK");
}

TEST_F(Tokens, ServerThatGoesAwayIsPeerLost) {
  auto& client = Open();
  ASSERT_TRUE(service.accepted.Take().has_value());
  server->Shutdown(Duration(0));
  const auto status = client.closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code(), Code::kUnavailable);
  EXPECT_EQ(status->reason(), Reason::kPeerLost);
  // And its address refuses quickly from now on.
  const TimePoint start = client_loop.Now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Open().closed.Take()->reason(), Reason::kPeerLost);
  EXPECT_LT(ToSeconds(client_loop.Now() - start), 5.0);
}

// TCP connections of this machine to `port`, of either family.
int ConnectionsTo(const std::string& port) {
  int count = 0;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    while (std::getline(table, line)) {
      unsigned remote_port = 0;
      unsigned state = 0;
      constexpr char kRow[] = " %*d: %*[0-9A-F]:%*x %*[0-9A-F]:%x %x";
      if (std::sscanf(line.c_str(), kRow, &remote_port, &state) != 2) continue;
      count += std::to_string(remote_port) == port && state == 1 ? 1 : 0;  // established
    }
  }
  return count;
}

TEST_F(Tokens, StreamsToOneAddressShareOneConnectionAcrossDialers) {
  const auto second = MakeDialer<DecodeProtocol>(client_loop);
  for (int i = 0; i < 4; ++i) Open();
  ClientEnd<DecodeProtocol> end;
  RunOn(client_loop, [&] { end.stream = second->Open(address, end.Handler()); });
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(service.accepted.Take().has_value());
  EXPECT_EQ(ConnectionsTo(address.substr(address.find(':') + 1)), 1);
  RunOn(client_loop, [&] { end.stream.reset(); });
}

TEST_F(Tokens, NameThatDoesNotResolveIsPeerLost) {
  EXPECT_EQ(Open("no-such-host.invalid:1").closed.Take()->reason(), Reason::kPeerLost);
  EXPECT_EQ(Open("not an address").closed.Take()->reason(), Reason::kPeerLost);
}

// A process that listens but does not answer (stopped, or not gRPC at all).
TEST_F(Tokens, ListenerThatNeverAnswersIsPeerLostAfterTheConnectDeadline) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(local);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&local), length), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&local), &length), 0);
  const TimePoint start = client_loop.Now();
  const auto status = Open("127.0.0.1:" + std::to_string(ntohs(local.sin_port))).closed.Take();
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->reason(), Reason::kPeerLost);
  EXPECT_LT(ToSeconds(client_loop.Now() - start), 10.0);
  close(listener);
}

TEST_F(Tokens, ShutdownLetsOpenStreamsEnd) {
  auto& client = Open();
  auto& served = **service.accepted.Take();
  std::promise<void> drained;
  std::thread shutdown([&] {
    server->Shutdown(Duration(kPatience));
    drained.set_value();
  });
  Send(served, TokenChunk{.tokens = {1, 2}});
  EXPECT_TRUE(client.messages.Take().has_value());
  RunOn(server_loop, [&] { served.stream->Close(OkStatus()); });
  EXPECT_EQ(client.closed.Take()->ToString(), "OK");
  EXPECT_EQ(drained.get_future().wait_for(kPatience), std::future_status::ready);
  shutdown.join();
  EXPECT_EQ(Open().closed.Take()->reason(), Reason::kPeerLost);
}

TEST_F(Tokens, ShutdownFromTheServicesOwnLoopDoesNotHang) {
  auto& client = Open();
  ASSERT_TRUE(service.accepted.Take().has_value());
  RunOn(server_loop, [&] { server->Shutdown(Duration(0)); });
  EXPECT_EQ(client.closed.Take()->reason(), Reason::kPeerLost);
}

TEST_F(Tokens, ProtocolThatIsNotServedIsUnimplemented) {
  auto pick = MakeDialer<peer::PickProtocol>(client_loop);
  ClientEnd<peer::PickProtocol> end;
  RunOn(client_loop, [&] { end.stream = pick->Open(address, end.Handler()); });
  const auto status = end.closed.Take();
  EXPECT_EQ(status->code(), Code::kUnimplemented);
  EXPECT_THAT(status->message(), HasSubstr("/millrace.v1.Pick/Stream"));
  RunOn(client_loop, [&] { end.stream.reset(); });
}

TEST_F(Tokens, PortInUseSaysSo) {
  Server second;
  const auto started =
      second.Start("127.0.0.1", static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.status().message(), HasSubstr("cannot listen on 127.0.0.1 port"));
  EXPECT_THAT(started.status().message(), HasSubstr("in use"));
}

TEST_F(Tokens, HostThatIsNotOursSaysSo) {
  Server second;
  const auto started = second.Start("192.0.2.1", 0);
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.status().message(), HasSubstr("192.0.2.1"));
}

TEST_F(Tokens, MessageOverTheLimitEndsTheStream) {
  auto& client = Open();
  auto& served = **service.accepted.Take();
  Send(served, TokenChunk{.tokens = std::vector<request::TokenId>(20'000'000, 2'000'000'000)});
  EXPECT_EQ(client.closed.Take()->code(), Code::kResourceExhausted);
  EXPECT_EQ(served.closed.Take()->code(), Code::kResourceExhausted);
}

class FewStreams : public RpcTest<peer::DecodeProtocol> {
 protected:
  FewStreams() : RpcTest({.max_streams = 2}) {}
};

TEST_F(FewStreams, StreamsOverTheLimitAreRefusedUntilOneEnds) {
  auto& first = Open();
  Open();
  ASSERT_TRUE(service.accepted.Take().has_value());
  ASSERT_TRUE(service.accepted.Take().has_value());
  const auto status = Open().closed.Take();
  EXPECT_EQ(status->code(), Code::kResourceExhausted);
  EXPECT_EQ(status->reason(), Reason::kOverloaded);
  RunOn(client_loop, [&] { first.stream.reset(); });
  ASSERT_TRUE(Eventually(server_loop, [&] { return server->open_streams() == 1; }));
  Open();
  EXPECT_TRUE(service.accepted.Take().has_value());
}

}  // namespace
}  // namespace millrace::rpc
