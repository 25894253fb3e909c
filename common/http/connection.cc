#include "common/http/connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace millrace::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using ErrorCode = boost::system::error_code;

namespace {

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

}  // namespace

void IoLoop::Post(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (!stopped_) asio::post(context, std::move(task));
}

void IoLoop::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  guard.reset();
}

void Exchange::ClientGone() {
  gone = true;
  if (finished || !on_disconnect) return;
  auto callback = std::move(on_disconnect);
  on_disconnect = nullptr;
  callback();
}

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<IoLoop> loop, std::shared_ptr<ServerShared> shared)
    : socket_(std::move(socket)), timer_(loop->context), loop_(std::move(loop)), shared_(std::move(shared)) {
  shared_->connections.fetch_add(1);
}

Connection::~Connection() { shared_->connections.fetch_sub(1); }

void Connection::Start() {
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

void Connection::Close() {
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

void Connection::CloseIfIdle() {
  if (phase_ == Phase::kReading && !request_started_) Close();
}

void Connection::Write(std::string bytes, bool last, bool keep_alive) {
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

void Connection::Abort() {
  loop_->Post([self = shared_from_this()] { self->Close(); });
}

void Connection::Arm(Duration after) {
  timer_.expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(after));
  timer_.async_wait([self = shared_from_this(), round = ++timer_round_](ErrorCode ec) {
    if (!ec && !self->closed_ && round == self->timer_round_) self->OnTimer();
  });
}

void Connection::OnTimer() {
  bool writes_stall = out_offset_ < out_.size();
  if (phase_ != Phase::kReading || !request_started_ || writes_stall) return Close();
  Refuse(408, header_done_ ? "The request's body took too long to arrive."
                           : "The request's headers took too long to arrive.");
}

void Connection::WaitReadable() {
  if (reading_ || closed_) return;
  reading_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](ErrorCode ec) {
    self->reading_ = false;
    if (self->closed_) return;
    if (ec) return self->Close();
    self->OnReadable();
  });
}

void Connection::OnReadable() {
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

// The client sends no more. One that only finished sending may still read, so an answer under way is still written.
void Connection::OnEnd(bool reset) {
  if (reset || phase_ == Phase::kReading || phase_ == Phase::kLingering) return Close();
  close_after_ = true;
  if (exchange_) shared_->executor.Post([exchange = exchange_] { exchange->ClientGone(); });
}

void Connection::Take(const char* data, size_t size) {
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

size_t Connection::Feed(const char* data, size_t size) {
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
    ErrorCode ec;
    size_t n = parser_->put(asio::buffer(data + used, size - used), ec);
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
      if (ec == beast::http::error::need_more || n == 0) break;
    }
  }
  return used;
}

// False when the request was refused.
bool Connection::OnHeader(bool body_waits) {
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

void Connection::Dispatch() {
  timer_.cancel();
  ++timer_round_;
  auto message = parser_->release();
  parser_.reset();

  auto request = std::make_shared<Request>();
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

void Connection::Refuse(int status, const std::string& message) {
  ErrorBody error = shared_->options.render_error(status, message);
  std::vector<Header> headers = {{"Content-Type", error.content_type},
                                 {"Content-Length", std::to_string(error.body.size())}};
  if (status == 503) headers.push_back({"Retry-After", "1"});
  ReleaseBody();
  std::string bytes = FormatHead(status, headers, false) + error.body;
  pending_.fetch_add(bytes.size(), std::memory_order_relaxed);
  phase_ = Phase::kFlushing;
  close_after_ = true;
  AppendOut(bytes);
}

void Connection::ReleaseBody() { shared_->body_bytes.fetch_sub(std::exchange(body_counted_, 0)); }

void Connection::AppendOut(const std::string& bytes) {
  if (out_offset_ > 0) {
    out_.erase(0, out_offset_);
    out_offset_ = 0;
  }
  out_ += bytes;
  Flush();
}

void Connection::Flush() {
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

void Connection::OnFlushed() {
  if (phase_ == Phase::kHandling) {  // no write waits, so none can stall
    timer_.cancel();
    ++timer_round_;
  }
  if (phase_ != Phase::kFlushing) return;
  if (close_after_ || shared_->draining.load(std::memory_order_relaxed)) return Linger();
  NextRequest();
}

void Connection::NextRequest() {
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
void Connection::Linger() {
  ErrorCode ec;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  if (ec) return Close();
  phase_ = Phase::kLingering;
  std::string().swap(leftover_);
  parser_.reset();
  Arm(kLingerTime);
  WaitReadable();
}

}  // namespace millrace::http
