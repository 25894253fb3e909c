#pragma once
// Private to common/http: one client connection on one IO loop.

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "common/http/server.h"

namespace millrace::http {

class Connection;

// One IO thread's loop. Everything but Post is used on its thread only.
struct IoLoop {
  boost::asio::io_context context{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard{context.get_executor()};
  std::array<char, 64 * 1024> scratch;  // read into, and parsed from, before the next read of any connection
  std::set<std::shared_ptr<Connection>> connections;

  // Thread-safe. Destroys `task` unrun after Stop.
  void Post(std::function<void()> task);
  void Stop();

 private:
  std::mutex mutex_;
  bool stopped_ = false;  // guarded by mutex_
};

// What all connections of a server share. `options`, `executor` and `handler` don't change.
struct ServerShared {
  ServerShared(ServerOptions o, Executor& e, Handler h) : options(std::move(o)), executor(e), handler(std::move(h)) {}
  const ServerOptions options;
  Executor& executor;
  const Handler handler;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopped{false};  // no handler is called any more
  std::atomic<size_t> connections{0};
  std::atomic<size_t> body_bytes{0};  // of requests that no handler has taken yet
};

// One request and its answer, as the handler's executor sees it.
struct Exchange {
  std::shared_ptr<Connection> connection;
  bool keep_alive = false;  // the client's wish
  bool head = false;        // answer without a body
  bool chunked = false;     // the client can read chunked coding
  // On the executor only.
  bool finished = false;
  bool gone = false;
  std::function<void()> on_disconnect;

  void ClientGone();
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<IoLoop> loop, std::shared_ptr<ServerShared> shared);
  ~Connection();

  // On the loop's thread.
  void Start();
  void Close();
  void CloseIfIdle();

  // Thread-safe. Bytes of the answer under way; `last` ends it, then `keep_alive` says whether another may follow.
  void Write(std::string bytes, bool last, bool keep_alive);
  void Abort();  // cut now, whatever is still to be sent
  size_t pending_bytes() const { return pending_.load(std::memory_order_relaxed); }
  const ServerShared& shared() const { return *shared_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
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

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
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

std::unique_ptr<Responder> MakeResponder(std::shared_ptr<Exchange> exchange);

// Status line and headers, with Date and Connection; framing headers are the caller's.
std::string FormatHead(int status, const std::vector<Header>& headers, bool keep_alive);

}  // namespace millrace::http
