#include "common/http/server.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "common/http/exchange.h"

namespace millrace::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using ErrorCode = boost::system::error_code;
using asio::ip::tcp;

namespace {

constexpr Duration kAcceptRetry = Milliseconds(100);
constexpr Duration kLingerTime = Seconds(3);
constexpr size_t kLingerBytes = size_t{1} << 30;
constexpr size_t kReadsPerWakeup = 8;
// Most body bytes that wait in memory for a handler, over all connections, in units of the largest body.
constexpr size_t kWaitingBodies = 16;

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view View(beast::string_view s) { return {s.data(), s.size()}; }

void SplitTarget(std::string_view target, Request& request) {
  if (size_t scheme = target.find("://"); !target.starts_with('/') && scheme != std::string_view::npos) {
    size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
}

class AsioConnection;

// One IO thread's loop. Everything but Post is used on its thread only.
struct IoLoop {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  std::array<char, 64 * 1024> scratch;  // read into, and parsed from, before the next read of any connection
  std::set<std::shared_ptr<AsioConnection>> connections;
  Rng request_ids{RandomSeed()};

  // Thread-safe. Destroys `task` unrun after Stop.
  void Post(std::function<void()> task);
  void Stop();

 private:
  std::mutex mutex_;
  bool stopped_ = false;  // guarded by mutex_
};

class AsioConnection final : public Connection, public std::enable_shared_from_this<AsioConnection> {
 public:
  AsioConnection(asio::ip::tcp::socket socket, std::shared_ptr<IoLoop> loop, std::shared_ptr<ServerShared> shared);
  ~AsioConnection() override;

  // On the loop's thread.
  void Start();
  void Close();
  void CloseIfIdle();

  void Write(std::string bytes, bool last, bool keep_alive) override;
  void Abort() override;
  size_t pending_bytes() const override { return pending_.load(std::memory_order_relaxed); }
  const ServerShared& shared() const override { return *shared_; }

 private:
  using Parser = beast::http::request_parser<beast::http::string_body>;
  enum class Phase : uint8_t { kReading, kHandling, kFlushing, kLingering };

  void Arm(Duration after);
  void OnTimer();
  void WaitReadable();
  void OnReadable();
  void OnEnd(bool reset);
  void Take(const char* data, size_t size);
  size_t Feed(const char* data, size_t size);
  bool OnHeader(bool body_waits);
  void Dispatch();
  void Refuse(int status, const std::string& message);
  void ReleaseBody();
  void AppendOut(const std::string& bytes);
  void Flush();
  void OnFlushed();
  void NextRequest();
  void Linger();

  asio::ip::tcp::socket socket_;
  asio::steady_timer timer_;
  const std::shared_ptr<IoLoop> loop_;
  const std::shared_ptr<ServerShared> shared_;
  std::optional<Parser> parser_;
  std::string leftover_;  // read, not parsed yet
  std::string out_;       // from out_offset_ on: to be written
  size_t out_offset_ = 0;
  std::atomic<size_t> pending_{0};  // bytes handed to Write that the kernel has not taken
  size_t body_counted_ = 0;         // this connection's part of ServerShared::body_bytes
  size_t lingered_bytes_ = 0;
  std::shared_ptr<Exchange> exchange_;
  std::string remote_address_;
  uint64_t timer_round_ = 0;
  Phase phase_ = Phase::kReading;
  bool request_started_ = false;  // its first byte is here
  bool header_done_ = false;
  bool reading_ = false;  // a read wait is pending
  bool writing_ = false;  // a write wait is pending
  bool close_after_ = false;
  bool closed_ = false;
};

void IoLoop::Post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (!stopped_) asio::post(context, std::move(task));
}

void IoLoop::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  guard.reset();
}

AsioConnection::AsioConnection(asio::ip::tcp::socket socket, std::shared_ptr<IoLoop> loop,
                               std::shared_ptr<ServerShared> shared)
    : socket_(std::move(socket)), timer_(loop->context), loop_(std::move(loop)), shared_(std::move(shared)) {
  shared_->connections.fetch_add(1);
}

AsioConnection::~AsioConnection() { shared_->connections.fetch_sub(1); }

void AsioConnection::Start() {
  if (shared_->draining.load()) return;
  ErrorCode ec;
  socket_.non_blocking(true, ec);
  socket_.set_option(asio::ip::tcp::no_delay(true), ec);
  socket_.set_option(asio::socket_base::keep_alive(true), ec);
  auto peer = socket_.remote_endpoint(ec);
  if (ec) return;  // gone before it was accepted
  remote_address_ = peer.address().to_string() + ":" + std::to_string(peer.port());
  loop_->connections.insert(shared_from_this());
  NextRequest();
}

void AsioConnection::Close() {
  if (closed_) return;
  closed_ = true;
  ErrorCode ec;
  socket_.close(ec);
  timer_.cancel();
  ReleaseBody();
  pending_.store(0, std::memory_order_relaxed);
  std::string().swap(out_);
  std::string().swap(leftover_);
  parser_.reset();
  if (exchange_) shared_->executor.Post([exchange = exchange_] { exchange->ClientGone(); });
  exchange_.reset();
  loop_->connections.erase(shared_from_this());
}

void AsioConnection::CloseIfIdle() {
  if (phase_ == Phase::kReading && !request_started_) Close();
}

void AsioConnection::Write(std::string bytes, bool last, bool keep_alive) {
  pending_.fetch_add(bytes.size(), std::memory_order_relaxed);
  loop_->Post([self = shared_from_this(), bytes = std::move(bytes), last, keep_alive] {
    if (self->closed_) return self->pending_.store(0, std::memory_order_relaxed);
    if (last) {
      self->phase_ = Phase::kFlushing;
      self->close_after_ = self->close_after_ || !keep_alive;
      self->exchange_.reset();
    }
    self->AppendOut(bytes);
  });
}

void AsioConnection::Abort() {
  loop_->Post([self = shared_from_this()] { self->Close(); });
}

void AsioConnection::Arm(Duration after) {
  timer_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(after));
  timer_.async_wait([self = shared_from_this(), round = ++timer_round_](ErrorCode ec) {
    if (!ec && !self->closed_ && round == self->timer_round_) self->OnTimer();
  });
}

void AsioConnection::OnTimer() {
  bool writes_stall = out_offset_ < out_.size();
  if (phase_ != Phase::kReading || !request_started_ || writes_stall) return Close();
  Refuse(408, header_done_ ? "The request's body took too long to arrive."
                           : "The request's headers took too long to arrive.");
}

void AsioConnection::WaitReadable() {
  if (reading_ || closed_) return;
  reading_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](ErrorCode ec) {
    self->reading_ = false;
    if (self->closed_) return;
    if (ec) return self->Close();
    self->OnReadable();
  });
}

void AsioConnection::OnReadable() {
  for (size_t i = 0; i < kReadsPerWakeup && !closed_; ++i) {
    bool full = phase_ != Phase::kReading && phase_ != Phase::kLingering &&
                leftover_.size() >= shared_->options.max_header_bytes;
    if (full) return;  // read on with the next request
    ErrorCode ec;
    size_t n = socket_.read_some(asio::buffer(loop_->scratch), ec);
    if (ec == asio::error::would_block || ec == asio::error::try_again) break;
    if (ec) return OnEnd(ec != asio::error::eof);
    Take(loop_->scratch.data(), n);
  }
  WaitReadable();
}

// The client sends no more. A client that left and one that only finished sending look the same here, so whoever wants
// to know is told that it left; an answer that comes all the same is written, and is the last one.
void AsioConnection::OnEnd(bool reset) {
  if (reset || phase_ == Phase::kReading || phase_ == Phase::kLingering) return Close();
  close_after_ = true;
  if (exchange_) shared_->executor.Post([exchange = exchange_] { exchange->ClientGone(); });
}

void AsioConnection::Take(const char* data, size_t size) {
  if (phase_ == Phase::kLingering) {
    lingered_bytes_ += size;
    if (lingered_bytes_ > kLingerBytes) Close();
    return;
  }
  if (phase_ != Phase::kReading) {
    leftover_.append(data, size);
    return;
  }
  if (leftover_.empty()) {
    size_t used = Feed(data, size);
    if (!closed_ && phase_ != Phase::kLingering) leftover_.assign(data + used, size - used);
    return;
  }
  leftover_.append(data, size);
  size_t used = Feed(leftover_.data(), leftover_.size());
  if (!closed_) leftover_.erase(0, used);
}

size_t AsioConnection::Feed(const char* data, size_t size) {
  size_t used = 0;
  if (!request_started_) {
    while (used < size && (data[used] == '\r' || data[used] == '\n')) ++used;  // allowed between requests
    if (used == size) return used;
    request_started_ = true;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
    parser_->body_limit(shared_->options.max_body_bytes);
    Arm(shared_->options.header_timeout);
  }
  while (used < size && phase_ == Phase::kReading && !closed_) {
    // Of a body the parser sees no more than this at once: a chunk's header or the trailers, which it takes only whole,
    // can't be longer, however they arrive.
    size_t most = header_done_ ? shared_->options.max_header_bytes : size;
    size_t given = std::min(most, size - used);
    ErrorCode ec;
    size_t n = parser_->put(asio::buffer(data + used, given), ec);
    used += n;
    if (ec == beast::http::error::body_limit) {
      Refuse(413, "The request's body is larger than " + std::to_string(shared_->options.max_body_bytes) + " bytes.");
    } else if (ec == beast::http::error::header_limit) {
      Refuse(431,
             "The request's headers are larger than " + std::to_string(shared_->options.max_header_bytes) + " bytes.");
    } else if (ec && ec != beast::http::error::need_more) {
      Refuse(400, "The request is not valid HTTP: " + ec.message() + ".");
    } else if (!header_done_ && parser_->is_header_done()) {
      header_done_ = true;
      if (OnHeader(used == size) && parser_->is_done()) Dispatch();
    } else if (parser_->is_done()) {
      Dispatch();
    } else {
      if (header_done_) {
        body_counted_ += n;
        size_t waiting = shared_->body_bytes.fetch_add(n) + n;
        if (waiting > kWaitingBodies * shared_->options.max_body_bytes) Refuse(503, "Too much is being sent at once.");
      }
      if (n > 0) continue;
      if (header_done_ && given == most) {
        Refuse(400, "A chunk's header or the trailers are larger than " + std::to_string(most) + " bytes.");
      }
      break;
    }
  }
  return used;
}

// False when the request was refused.
bool AsioConnection::OnHeader(bool body_waits) {
  const auto& message = parser_->get();
  if (message.version() != 10 && message.version() != 11) {
    Refuse(400, "Only HTTP/1.0 and HTTP/1.1 are served here.");
  } else if (message.version() == 11 && message.count(beast::http::field::host) != 1) {
    Refuse(400, "The request must have exactly one Host header.");
  } else if (auto te = View(message[beast::http::field::transfer_encoding]);
             !te.empty() && !EqualsIgnoringCase(te, "chunked")) {
    Refuse(501, "The only transfer coding served is chunked.");
  } else if (auto expect = View(message[beast::http::field::expect]); !expect.empty()) {
    if (!EqualsIgnoringCase(expect, "100-continue")) {
      Refuse(417, "The only expectation served is 100-continue.");
    } else if (body_waits && message.version() == 11 && !parser_->is_done()) {
      AppendOut("HTTP/1.1 100 Continue\r\n\r\n");
    }
  }
  if (closed_ || phase_ != Phase::kReading) return false;
  parser_->eager(true);
  if (!parser_->is_done()) Arm(shared_->options.body_timeout);
  return true;
}

void AsioConnection::Dispatch() {
  timer_.cancel();
  ++timer_round_;
  auto message = parser_->release();
  parser_.reset();

  auto request = std::make_shared<Request>();
  request->id = NewId(loop_->request_ids, "req_");
  request->method = View(message.method_string());
  SplitTarget(View(message.target()), *request);
  for (const auto& field : message) {
    std::string name(View(field.name_string()));
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    request->headers.push_back({std::move(name), std::string(View(field.value()))});
  }
  request->body = std::move(message.body());
  request->remote_address = remote_address_;

  exchange_ = std::make_shared<Exchange>();
  exchange_->connection = shared_from_this();
  exchange_->request_id = request->id;
  exchange_->keep_alive = message.keep_alive();
  exchange_->head = message.method() == beast::http::verb::head;
  exchange_->chunked = message.version() == 11;
  phase_ = Phase::kHandling;
  size_t counted = std::exchange(body_counted_, 0);
  auto responder = std::make_shared<std::unique_ptr<Responder>>(MakeResponder(exchange_));
  shared_->executor.Post([shared = shared_, request, responder, counted] {
    shared->body_bytes.fetch_sub(counted);
    if (!shared->stopped.load()) shared->handler(std::move(*request), std::move(*responder));
  });
}

void AsioConnection::Refuse(int status, const std::string& message) {
  ErrorBody error = shared_->options.render_error(status, message);
  std::vector<Header> headers = {{"Content-Type", error.content_type},
                                 {"Content-Length", std::to_string(error.body.size())}};
  if (status == 503) headers.push_back({"Retry-After", "1"});
  ReleaseBody();
  std::string bytes = FormatHead(status, headers, NewId(loop_->request_ids, "req_"), false) + error.body;
  pending_.fetch_add(bytes.size(), std::memory_order_relaxed);
  phase_ = Phase::kFlushing;
  close_after_ = true;
  AppendOut(bytes);
}

void AsioConnection::ReleaseBody() { shared_->body_bytes.fetch_sub(std::exchange(body_counted_, 0)); }

void AsioConnection::AppendOut(const std::string& bytes) {
  if (out_offset_ > 0) {
    out_.erase(0, out_offset_);
    out_offset_ = 0;
  }
  out_ += bytes;
  Flush();
}

void AsioConnection::Flush() {
  if (writing_ || closed_) return;
  while (out_offset_ < out_.size()) {
    ErrorCode ec;
    size_t n = socket_.write_some(asio::buffer(out_.data() + out_offset_, out_.size() - out_offset_), ec);
    out_offset_ += n;
    size_t counted = std::min(n, pending_.load(std::memory_order_relaxed));
    pending_.fetch_sub(counted, std::memory_order_relaxed);
    if (ec == asio::error::would_block || ec == asio::error::try_again) {
      writing_ = true;
      if (phase_ != Phase::kReading) Arm(shared_->options.write_timeout);
      socket_.async_wait(asio::ip::tcp::socket::wait_write, [self = shared_from_this()](ErrorCode wait_ec) {
        self->writing_ = false;
        if (self->closed_) return;
        if (wait_ec) return self->Close();
        self->Flush();
      });
      return;
    }
    if (ec) return Close();
  }
  out_offset_ = 0;
  out_.clear();
  if (out_.capacity() > 4096) out_.shrink_to_fit();
  OnFlushed();
}

void AsioConnection::OnFlushed() {
  if (phase_ == Phase::kHandling) {  // no write waits, so none can stall
    timer_.cancel();
    ++timer_round_;
  }
  if (phase_ != Phase::kFlushing) return;
  if (close_after_ || shared_->draining.load(std::memory_order_relaxed)) return Linger();
  NextRequest();
}

void AsioConnection::NextRequest() {
  phase_ = Phase::kReading;
  request_started_ = false;
  header_done_ = false;
  Arm(shared_->options.keep_alive_timeout);
  if (!leftover_.empty()) {
    std::string data = std::exchange(leftover_, {});
    size_t used = Feed(data.data(), data.size());
    if (!closed_ && phase_ != Phase::kLingering && used < data.size()) leftover_ = data.substr(used) + leftover_;
  }
  WaitReadable();
}

// Closing a socket that has unread input resets it and may destroy the answer on its way; so finish sending, and read
// to the client's end for a short while.
void AsioConnection::Linger() {
  ErrorCode ec;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  if (ec) return Close();
  phase_ = Phase::kLingering;
  std::string().swap(leftover_);
  parser_.reset();
  Arm(kLingerTime);
  WaitReadable();
}

class AsioServer final : public Server {
 public:
  AsioServer(ServerOptions options, Executor& executor, Handler handler)
      : shared_(std::make_shared<ServerShared>(std::move(options), executor, std::move(handler))) {
    for (uint32_t i = 0; i < std::max(1u, shared_->options.io_threads); ++i)
      loops_.push_back(std::make_shared<IoLoop>());
    acceptor_.emplace(loops_[0]->context);
    accept_retry_.emplace(loops_[0]->context);
  }

  ~AsioServer() override { Stop(); }

  Status Bind();
  void Run();

  uint16_t port() const override { return port_; }
  std::string address() const override {
    const std::string& host = shared_->options.host;
    return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port_);
  }
  size_t connections() const override { return shared_->connections.load(); }
  void StopAccepting() override;
  void Stop() override;

 private:
  void Accept();
  void OnAccept(ErrorCode ec, std::shared_ptr<tcp::socket> socket, size_t loop);
  void RefuseConnection(tcp::socket& socket);

  const std::shared_ptr<ServerShared> shared_;
  std::vector<std::shared_ptr<IoLoop>> loops_;
  std::optional<tcp::acceptor> acceptor_;           // on loops_[0]
  std::optional<asio::steady_timer> accept_retry_;  // on loops_[0]
  std::vector<std::thread> threads_;
  size_t next_loop_ = 0;  // on loops_[0]
  uint16_t port_ = 0;
  bool stopped_ = false;
};

Status AsioServer::Bind() {
  const ServerOptions& options = shared_->options;
  std::string where = "listen on " + options.host + ":" + std::to_string(options.port);
  ErrorCode ec;
  tcp::resolver resolver(loops_[0]->context);
  auto found = resolver.resolve(options.host, std::to_string(options.port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec) return InvalidArgument(where + ": " + ec.message());
  tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_->open(endpoint.protocol(), ec);
  if (!ec) acceptor_->set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) acceptor_->bind(endpoint, ec);
  if (!ec) acceptor_->listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return ErrnoStatus(ec.value(), where);
  port_ = acceptor_->local_endpoint(ec).port();
  return OkStatus();
}

void AsioServer::Run() {
  Accept();
  for (auto& loop : loops_) threads_.emplace_back([loop] { loop->context.run(); });
}

void AsioServer::Accept() {
  if (!acceptor_->is_open()) return;
  size_t loop = next_loop_++ % loops_.size();
  auto socket = std::make_shared<tcp::socket>(loops_[loop]->context);
  acceptor_->async_accept(*socket, [this, socket, loop](ErrorCode ec) { OnAccept(ec, socket, loop); });
}

void AsioServer::OnAccept(ErrorCode ec, std::shared_ptr<tcp::socket> socket, size_t loop) {
  if (!acceptor_->is_open()) return;
  if (ec) {  // out of descriptors, or the client left in between
    accept_retry_->expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(kAcceptRetry));
    accept_retry_->async_wait([this](ErrorCode wait_ec) {
      if (!wait_ec) Accept();
    });
    return;
  }
  if (shared_->connections.load() >= shared_->options.max_connections) {
    RefuseConnection(*socket);
  } else {
    auto connection = std::make_shared<AsioConnection>(std::move(*socket), loops_[loop], shared_);
    loops_[loop]->Post([connection] { connection->Start(); });
  }
  Accept();
}

void AsioServer::RefuseConnection(tcp::socket& socket) {
  ErrorBody error = shared_->options.render_error(503, "Too many connections are open.");
  std::string bytes = FormatHead(503,
                                 {{"Content-Type", error.content_type},
                                  {"Content-Length", std::to_string(error.body.size())},
                                  {"Retry-After", "1"}},
                                 NewId(loops_[0]->request_ids, "req_"), false) +
                      error.body;
  ErrorCode ec;
  socket.non_blocking(true, ec);
  socket.write_some(asio::buffer(bytes), ec);
  socket.shutdown(tcp::socket::shutdown_send, ec);
}

void AsioServer::StopAccepting() {
  if (shared_->draining.exchange(true)) return;
  loops_[0]->Post([this] {
    ErrorCode ec;
    acceptor_->close(ec);
    accept_retry_->cancel();
  });
  for (auto& loop : loops_) {
    loop->Post([loop] {
      auto connections = loop->connections;  // closing removes from the set
      for (auto& connection : connections) connection->CloseIfIdle();
    });
  }
}

void AsioServer::Stop() {
  if (stopped_) return;
  stopped_ = true;
  shared_->stopped = true;
  if (threads_.empty()) return;  // never ran: tasks would wait, and hold their loop, for ever
  StopAccepting();
  for (auto& loop : loops_) {
    loop->Post([loop] {
      auto connections = loop->connections;
      for (auto& connection : connections) connection->Close();
    });
  }
  for (auto& loop : loops_) loop->Stop();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace

bool IsLoopback(const std::string& host) {
  return host.starts_with("127.") || host == "localhost" || host == "::1" || host == "[::1]";
}

ErrorBody PlainTextError(int, const std::string& message) { return {"text/plain; charset=utf-8", message + "\n"}; }

StatusOr<std::unique_ptr<Server>> Server::Listen(ServerOptions options, Executor& executor, Handler handler) {
  auto server = std::make_unique<AsioServer>(std::move(options), executor, std::move(handler));
  MR_RETURN_IF_ERROR(server->Bind());
  server->Run();
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace millrace::http
