#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <set>

#include "common/base/event_loop.h"
#include "common/http/router.h"
#include "common/http/server.h"

namespace millrace::http {
namespace {

constexpr int kPatienceMs = 20'000;

// A raw TCP client; every read has a deadline.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool connected() const { return connected_; }
  // False once the server refuses bytes.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Bytes sent, `most` or more unless the server stops reading.
  size_t SendUntilStuck(std::string_view bytes, size_t most) {
    size_t sent = 0;
    for (pollfd p{fd_, POLLOUT, 0}; sent < most && ::poll(&p, 1, 500) == 1;) {
      ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) break;
      sent += static_cast<size_t>(n);
    }
    return sent;
  }
  void FinishSending() { ::shutdown(fd_, SHUT_WR); }

  // Reads until `text` is in what was read so far (then everything up to its end is returned and taken), or "" at the
  // end of the stream or after kPatienceMs.
  std::string ReadTo(std::string_view text) {
    while (true) {
      if (size_t at = buffer_.find(text); at != std::string::npos) {
        std::string result = buffer_.substr(0, at + text.size());
        buffer_.erase(0, at + text.size());
        return result;
      }
      if (!Fill()) return "";
    }
  }
  std::string ReadToEnd() {
    while (Fill()) {
    }
    return std::exchange(buffer_, {});
  }
  // One whole answer with Content-Length.
  std::string ReadAnswer() {
    std::string head = ReadTo("\r\n\r\n");
    size_t at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    size_t length = std::stoul(head.substr(at + 16));
    while (buffer_.size() < length) {
      if (!Fill()) return "";
    }
    std::string body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return head + body;
  }
  bool timed_out() const { return timed_out_; }

 private:
  bool Fill() {
    pollfd p{fd_, POLLIN, 0};
    if (::poll(&p, 1, kPatienceMs) != 1) {
      timed_out_ = true;
      return false;
    }
    char bytes[4096];
    ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  int fd_ = -1;
  bool connected_ = false;
  bool timed_out_ = false;
  std::string buffer_;
};

std::string Get(const std::string& path, const std::string& extra = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + extra + "\r\n";
}

std::string Post(const std::string& path, const std::string& body, const std::string& extra = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + extra +
         "\r\n" + body;
}

// Streams that a test holds on to. On the executor.
struct Held {
  std::vector<std::unique_ptr<Responder>> responders;
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() {
    router_.Add("GET", "/hello", [](Request, std::unique_ptr<Responder> r) {
      r->Send(200, {{"Content-Type", "text/plain"}}, "hello\n");
    });
    router_.Add("POST", "/echo", [](Request q, std::unique_ptr<Responder> r) {
      r->Send(200, {{"X-Echo", std::string(q.HeaderValue("x-echo"))}}, std::move(q.body));
    });
    router_.Add("POST", "/size",
                [](Request q, std::unique_ptr<Responder> r) { r->Send(200, {}, std::to_string(q.body.size())); });
    router_.Add("GET", "/drop", [](Request, std::unique_ptr<Responder>) {});
    router_.Add("GET", "/three", [](Request, std::unique_ptr<Responder> r) {
      r->StartStream(200, {{"Content-Type", "text/event-stream"}});
      for (const char* text : {"one", "two", "three"}) r->Write(text);
      r->End();
    });
    router_.Add("GET", "/cut", [](Request, std::unique_ptr<Responder> r) {
      r->StartStream(200, {});
      r->Write("part");
    });
    router_.Add("GET", "/hold", [this](Request, std::unique_ptr<Responder> r) {
      r->StartStream(200, {{"Content-Type", "text/event-stream"}});
      r->Write("held\n\n");
      r->OnDisconnect([this] { CountGone(); });
      held_.responders.push_back(std::move(r));
    });
    router_.Add("GET", "/wait", [this](Request, std::unique_ptr<Responder> r) {
      r->OnDisconnect([this] { CountGone(); });
      held_.responders.push_back(std::move(r));
    });
  }
  ~HttpServerTest() override { StopAll(); }

  void Start(ServerOptions options = {}) {
    auto server = Server::Listen(std::move(options), loop_, [this](Request q, std::unique_ptr<Responder> r) {
      router_.Handle(std::move(q), std::move(r));
    });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  void StopAll() {
    if (server_) server_->Stop();
    OnLoop([this] { held_.responders.clear(); });
    server_.reset();
  }
  void OnLoop(std::function<void()> f) {
    std::promise<void> done;
    loop_.Post([&] {
      f();
      done.set_value();
    });
    done.get_future().wait();
  }
  void CountGone() {
    std::lock_guard lock(mutex_);
    ++gone_;
    changed_.notify_all();
  }
  bool WaitGone(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return gone_ >= count; });
  }
  // A loop over the server's own counter, bounded by its reads' deadlines.
  bool WaitConnections(size_t count) {
    auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (server_->connections() != count) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  EventLoop loop_{"http-test"};
  Router router_;
  Held held_;
  std::unique_ptr<Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int gone_ = 0;  // guarded by mutex_
};

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start();
  Client client(server_->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(Get("/hello")));
    std::string answer = client.ReadAnswer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nhello\n")) << answer;
  }
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  Client client(server_->port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += Post("/echo", std::to_string(i));
  ASSERT_TRUE(client.Send(all));
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(client.ReadAnswer().ends_with("\r\n\r\n" + std::to_string(i)));
}

TEST_F(HttpServerTest, RequestArrivingByteByByte) {
  Start();
  Client client(server_->port());
  for (char c : Post("/echo", "abc")) ASSERT_TRUE(client.Send(std::string_view(&c, 1)));
  EXPECT_TRUE(client.ReadAnswer().ends_with("abc"));
}

TEST_F(HttpServerTest, HeadHasLengthAndNoBody) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send("HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n" + Get("/hello")));
  EXPECT_NE(client.ReadTo("\r\n\r\n").find("Content-Length: 6"), std::string::npos);
  EXPECT_TRUE(client.ReadAnswer().ends_with("hello\n"));
}

TEST_F(HttpServerTest, ChunkedRequestBody) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\n\r\n"));
  EXPECT_TRUE(client.ReadAnswer().ends_with("abcdefg"));
}

TEST_F(HttpServerTest, ExpectContinueIsAnswered) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.ReadTo("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send("ok"));
  EXPECT_TRUE(client.ReadAnswer().ends_with("ok"));
}

TEST_F(HttpServerTest, ConnectionCloseAndHttp10AreClosedAfterTheAnswer) {
  Start();
  for (std::string request : {Get("/hello", "Connection: close\r\n"), std::string("GET /hello HTTP/1.0\r\n\r\n")}) {
    Client client(server_->port());
    ASSERT_TRUE(client.Send(request));
    EXPECT_TRUE(client.ReadToEnd().ends_with("hello\n"));
    EXPECT_FALSE(client.timed_out());
  }
}

TEST_F(HttpServerTest, StreamsChunkedOrToTheEndOfAnOldConnection) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Get("/three") + Get("/hello")));
  EXPECT_NE(client.ReadTo("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_EQ(client.ReadTo("0\r\n\r\n"), "3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n");
  EXPECT_TRUE(client.ReadAnswer().ends_with("hello\n"));

  Client old(server_->port());
  ASSERT_TRUE(old.Send("GET /three HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(old.ReadToEnd().ends_with("\r\n\r\nonetwothree"));
}

TEST_F(HttpServerTest, DroppedRequestIs500AndDroppedStreamIsCutShort) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Get("/drop")));
  EXPECT_TRUE(client.ReadAnswer().starts_with("HTTP/1.1 500 "));
  ASSERT_TRUE(client.Send(Get("/cut")));
  std::string rest = client.ReadToEnd();
  EXPECT_FALSE(client.timed_out());
  EXPECT_EQ(rest.find("0\r\n\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, BodyOverTheLimitIs413AndTheClientMaySendItAll) {
  Start();
  for (std::string head : {std::string("Content-Length: 104857600\r\n\r\n"),
                           std::string("Transfer-Encoding: chunked\r\n\r\n6400000\r\n")}) {
    Client client(server_->port());
    ASSERT_TRUE(client.Send("POST /size HTTP/1.1\r\nHost: x\r\n" + head));
    std::string megabyte(1 << 20, 'x');
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(client.Send(megabyte)) << "reset after " << i << " MiB";
    client.FinishSending();
    std::string answer = client.ReadToEnd();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 ")) << answer.substr(0, 200);
    EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  }
}

TEST_F(HttpServerTest, HugeBodyNeedsNoMemory) {
  Start();
  auto resident_kib = [] {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
      if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
    }
    return 0L;
  };
  long before = resident_kib();
  Client client(server_->port());
  ASSERT_TRUE(client.Send("POST /size HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n"));
  std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client.Send(megabyte));
  EXPECT_TRUE(client.ReadAnswer().starts_with("HTTP/1.1 413 "));
  EXPECT_LT(resident_kib() - before, 16 * 1024);
}

TEST_F(HttpServerTest, BodyOfTheLimitIsTaken) {
  ServerOptions options;
  options.max_body_bytes = 1 << 20;
  Start(options);
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Post("/size", std::string(1 << 20, 'x'))));
  EXPECT_TRUE(client.ReadAnswer().ends_with("1048576"));
}

TEST_F(HttpServerTest, HeadersOverTheLimitAre431) {
  Start();
  Client client(server_->port());
  client.Send("GET /hello HTTP/1.1\r\nHost: x\r\nX-Big: " + std::string(1 << 20, 'x'));
  std::string answer = client.ReadToEnd();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 431 ")) << answer.substr(0, 200);
  EXPECT_FALSE(client.timed_out());
}

TEST_F(HttpServerTest, EndlessChunkHeadersAndTrailersNeedNoMemory) {
  Start();
  const std::string lots(100'000, '0');
  std::string lines;
  while (lines.size() < 800'000) lines += "X-Trailer: a value\r\n";
  for (const std::string& body : {"5;" + lots, lots, "3\r\nabc\r\n5;" + lots, "0\r\n" + lots, "0;" + lots,
                                  "0\r\n" + lines, "0\r\n" + lines + "\r\n"}) {
    Client client(server_->port());
    ASSERT_TRUE(client.Send("POST /size HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body));
    std::string answer = client.ReadToEnd();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << body.substr(0, 20) << " -> " << answer.substr(0, 200);
    EXPECT_FALSE(client.timed_out()) << body.substr(0, 20);
  }
}

TEST_F(HttpServerTest, ChunkHeadersAndTrailersUpToTheLimitAreTaken) {
  ServerOptions options;
  options.max_header_bytes = 4096;
  Start(options);
  auto answer = [&](const std::string& body) {
    Client client(server_->port());
    client.Send("POST /size HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + body);
    return client.ReadToEnd().substr(0, 13);
  };
  auto extension = [](size_t size) { return "3;a=" + std::string(size - 6, 'x') + "\r\nabc\r\n0\r\n\r\n"; };
  auto trailer = [](size_t size) { return "3\r\nabc\r\n0\r\nT: " + std::string(size - 12, 'x') + "\r\n\r\n"; };
  EXPECT_EQ(answer(extension(4096)), "HTTP/1.1 200 ");
  EXPECT_EQ(answer(extension(4097)), "HTTP/1.1 400 ");
  EXPECT_EQ(answer(trailer(4096)), "HTTP/1.1 200 ");
  EXPECT_EQ(answer(trailer(4097)), "HTTP/1.1 400 ");
}

TEST_F(HttpServerTest, RequestsPipelinedWithoutEndAreNotReadWhileAnAnswerIsUnderWay) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  ASSERT_NE(client.ReadTo("held\n\n"), "");
  constexpr size_t kMost = 256 << 20;  // far above what the kernel holds
  EXPECT_LT(client.SendUntilStuck(std::string(64 << 10, 'x'), kMost), kMost);
}

TEST_F(HttpServerTest, SlowHeadersAndSlowBodiesAre408) {
  ServerOptions options;
  options.header_timeout = Milliseconds(50);
  options.body_timeout = Milliseconds(50);
  Start(options);
  for (const char* start : {"GET /hel", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"}) {
    Client client(server_->port());
    ASSERT_TRUE(client.Send(start));
    EXPECT_TRUE(client.ReadToEnd().starts_with("HTTP/1.1 408 "));
    EXPECT_FALSE(client.timed_out());
  }
}

TEST_F(HttpServerTest, SilentConnectionIsClosedWithoutAWord) {
  ServerOptions options;
  options.keep_alive_timeout = Milliseconds(50);
  Start(options);
  Client client(server_->port());
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_FALSE(client.timed_out());
}

TEST_F(HttpServerTest, MalformedRequestsAreRefused) {
  Start();
  const std::pair<const char*, const char*> cases[] = {
      {"rubbish\r\n\r\n", "400"},
      {"GET /hello HTTP/1.1\r\n\r\n", "400"},  // no Host
      {"GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", "400"},
      {"GET /hello HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: tea\r\n\r\n", "417"},
  };
  for (const auto& [request, status] : cases) {
    Client client(server_->port());
    ASSERT_TRUE(client.Send(request));
    EXPECT_EQ(client.ReadToEnd().substr(9, 3), status) << request;
    EXPECT_FALSE(client.timed_out());
  }
}

std::string RequestId(const std::string& answer) {
  const size_t at = answer.find("\r\nX-Request-Id: req_");
  return at == std::string::npos ? "" : answer.substr(at + 16, answer.find("\r\n", at + 2) - at - 16);
}

TEST_F(HttpServerTest, RefusalsHaveARequestIdLikeOtherAnswers) {
  ServerOptions options;
  options.max_body_bytes = 10;
  Start(options);
  const std::pair<std::string, const char*> cases[] = {
      {Get("/hello"), "200"},
      {Get("/three"), "200"},  // a stream
      {Get("/nothing"), "404"},
      {Post("/hello", ""), "405"},
      {"OPTIONS /hello HTTP/1.1\r\nHost: x\r\n\r\n", "204"},
      {Get("/drop"), "500"},
      {Post("/echo", "more than ten"), "413"},
      {"rubbish\r\n\r\n", "400"},
  };
  std::set<std::string> ids;
  for (const auto& [request, status] : cases) {
    Client client(server_->port());
    ASSERT_TRUE(client.Send(request));
    const std::string answer = client.ReadAnswer();
    EXPECT_EQ(answer.substr(9, 3), status) << request;
    EXPECT_NE(RequestId(answer), "") << answer;
    EXPECT_NE(answer.find("\r\nRequest-Id: " + RequestId(answer) + "\r\n"), std::string::npos) << answer;
    ids.insert(RequestId(answer));
  }
  EXPECT_EQ(ids.size(), std::size(cases));
}

TEST_F(HttpServerTest, ErrorWithAnUnreadBodyDoesNotDesyncTheConnection) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Post("/nothing", "GET /hello HTTP/1.1\r\nHost: evil\r\n\r\n") + Get("/hello")));
  EXPECT_TRUE(client.ReadAnswer().starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(client.ReadAnswer().ends_with("hello\n"));
}

TEST_F(HttpServerTest, EchoedHeaderCannotEndItsLine) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Post("/echo", "", "X-Echo: a\tb\r\n")));
  EXPECT_NE(client.ReadAnswer().find("X-Echo: a\tb\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, ClientThatLeavesAnIdleStreamIsNoticed) {
  Start();
  auto client = std::make_unique<Client>(server_->port());
  ASSERT_TRUE(client->Send(Get("/hold")));
  ASSERT_NE(client->ReadTo("held\n\n"), "");
  client.reset();
  EXPECT_TRUE(WaitGone(1));
  OnLoop([this] { held_.responders.clear(); });
  EXPECT_TRUE(WaitConnections(0));
  EXPECT_EQ(gone_, 1);
}

TEST_F(HttpServerTest, ClientThatFinishedSendingStillGetsItsAnswer) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Get("/hello")));
  client.FinishSending();
  EXPECT_TRUE(client.ReadToEnd().ends_with("hello\n"));
}

TEST_F(HttpServerTest, HalfClosedClientWhoseRequestIsDroppedGetsNo500) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Get("/wait")));
  client.FinishSending();
  ASSERT_TRUE(WaitGone(1));
  OnLoop([this] { held_.responders.clear(); });
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_FALSE(client.timed_out());
}

TEST_F(HttpServerTest, LateAnswerToAHalfClosedClientSaysThatItIsTheLast) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Get("/wait")));
  client.FinishSending();
  ASSERT_TRUE(WaitGone(1));
  OnLoop([this] { held_.responders[0]->Send(200, {}, "late"); });
  std::string answer = client.ReadToEnd();
  EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("late"));
}

TEST_F(HttpServerTest, SlowReaderOfAStreamIsCutAtTheLimit) {
  ServerOptions options;
  options.max_stream_pending_bytes = 256 * 1024;
  Start(options);
  Client client(server_->port(), 4096);
  ASSERT_TRUE(client.Send(Get("/hold")));
  ASSERT_NE(client.ReadTo("held\n\n"), "");
  size_t most = 0;
  OnLoop([&] {
    for (int i = 0; i < 10'000; ++i) {
      held_.responders[0]->Write(std::string(4096, 'x'));
      most = std::max(most, held_.responders[0]->pending_bytes());
    }
  });
  EXPECT_TRUE(WaitGone(1));
  EXPECT_LE(most, 260u * 1024);
}

TEST_F(HttpServerTest, ClientThatNeverReadsIsCutAfterTheWriteTimeout) {
  ServerOptions options;
  options.write_timeout = Milliseconds(100);
  options.max_stream_pending_bytes = 64 << 20;
  Start(options);
  Client client(server_->port(), 4096);
  ASSERT_TRUE(client.Send(Get("/hold")));
  ASSERT_NE(client.ReadTo("held\n\n"), "");
  OnLoop([&] { held_.responders[0]->Write(std::string(32 << 20, 'x')); });
  EXPECT_TRUE(WaitGone(1));
}

TEST_F(HttpServerTest, ConnectionsAreBounded) {
  ServerOptions options;
  options.max_connections = 2;
  Start(options);
  Client a(server_->port());
  Client b(server_->port());
  for (Client* client : {&a, &b}) {
    ASSERT_TRUE(client->Send(Get("/hello")));
    ASSERT_NE(client->ReadAnswer(), "");
  }
  Client c(server_->port());
  const std::string refused = c.ReadToEnd();
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 503 "));
  EXPECT_NE(refused.find("\r\nX-Request-Id: req_"), std::string::npos);
  a.Close();
  ASSERT_TRUE(WaitConnections(1));
  Client d(server_->port());
  ASSERT_TRUE(d.Send(Get("/hello")));
  EXPECT_TRUE(d.ReadAnswer().starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, PortInUseIsSaidClearly) {
  Start();
  ServerOptions options;
  options.port = server_->port();
  auto second = Server::Listen(options, loop_, [](Request, std::unique_ptr<Responder>) {});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("127.0.0.1:" + std::to_string(options.port)), std::string::npos)
      << second.status().ToString();
  EXPECT_NE(second.status().message().find("in use"), std::string::npos) << second.status().ToString();
}

TEST_F(HttpServerTest, UnknownHostIsAnError) {
  ServerOptions options;
  options.host = "no.such.host.invalid";
  EXPECT_FALSE(Server::Listen(options, loop_, [](Request, std::unique_ptr<Responder>) {}).ok());
}

TEST_F(HttpServerTest, DrainFinishesAnswersAndTakesNoConnections) {
  Start();
  Client idle(server_->port());
  ASSERT_TRUE(idle.Send(Get("/hello")));
  ASSERT_NE(idle.ReadAnswer(), "");
  Client busy(server_->port());
  ASSERT_TRUE(busy.Send(Get("/hold")));
  ASSERT_NE(busy.ReadTo("held\n\n"), "");
  server_->StopAccepting();
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_FALSE(idle.timed_out());
  OnLoop([&] {
    held_.responders[0]->Write("more");
    held_.responders[0]->End();
  });
  EXPECT_TRUE(busy.ReadToEnd().ends_with("4\r\nmore\r\n0\r\n\r\n"));
  EXPECT_FALSE(Client(server_->port()).connected());
}

TEST_F(HttpServerTest, StopWithOpenStreamsEndsAtOnce) {
  Start();
  Client client(server_->port());
  ASSERT_TRUE(client.Send(Get("/hold")));
  ASSERT_NE(client.ReadTo("held\n\n"), "");
  server_->Stop();
  OnLoop([&] { held_.responders[0]->Write("into the void"); });
  client.ReadToEnd();
  EXPECT_FALSE(client.timed_out());
}

TEST_F(HttpServerTest, TwoThousandIdleStreamsCostAtMost64KibEach) {
  constexpr int kStreams = 2000;
  ServerOptions options;
  options.io_threads = 2;
  Start(options);
  auto resident = [] {
    long pages = 0;
    long rss = 0;
    std::ifstream("/proc/self/statm") >> pages >> rss;
    return rss * ::sysconf(_SC_PAGESIZE);
  };
  long before = resident();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    if (!clients.back()->connected()) GTEST_SKIP() << "only " << i << " descriptors here";
    ASSERT_TRUE(clients.back()->Send(Get("/hold")));
    ASSERT_NE(clients.back()->ReadTo("held\n\n"), "");
  }
  long each = (resident() - before) / kStreams;
  RecordProperty("bytes_per_stream", std::to_string(each));
  std::printf("bytes per idle stream, client's included: %ld\n", each);
  EXPECT_LE(each, 64 * 1024);
  clients.clear();
  EXPECT_TRUE(WaitGone(kStreams));
}

}  // namespace
}  // namespace millrace::http
