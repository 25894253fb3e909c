#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "common/base/log.h"
#include "common/http/exchange.h"

namespace millrace::http {

namespace {

// Nothing a handler copies from a client's header may end the line.
void AppendClean(std::string& out, std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 0x20 || c == '\t') out += c;
  }
}

std::string DateNow() {
  std::time_t seconds = WallClockMs() / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  size_t n = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return {text.data(), n};
}

bool HasBody(int status) { return status >= 200 && status != 204 && status != 304; }

class ConnectionResponder final : public Responder {
 public:
  explicit ConnectionResponder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  ~ConnectionResponder() override {
    exchange_->on_disconnect = nullptr;
    if (exchange_->finished) return;
    if (started_ || exchange_->gone) {
      exchange_->finished = true;
      connection().Abort();
      return;
    }
    ErrorBody error = connection().shared().options.render_error(500, "The request was dropped by the server.");
    Send(500, {{"Content-Type", std::move(error.content_type)}}, std::move(error.body));
  }

  void Send(int status, std::vector<Header> headers, std::string body) override {
    if (started_) return;
    started_ = true;
    exchange_->finished = true;
    if (HasBody(status)) headers.push_back({"Content-Length", std::to_string(body.size())});
    bool keep_alive = KeepAlive();
    std::string bytes = FormatHead(status, headers, exchange_->request_id, keep_alive);
    if (HasBody(status) && !exchange_->head) bytes += body;
    connection().Write(std::move(bytes), true, keep_alive);
  }

  void StartStream(int status, std::vector<Header> headers) override {
    if (started_) return;
    started_ = true;
    keep_alive_ = KeepAlive() && exchange_->chunked;
    if (exchange_->chunked) headers.push_back({"Transfer-Encoding", "chunked"});
    connection().Write(FormatHead(status, headers, exchange_->request_id, keep_alive_), false, false);
  }

  void Write(std::string chunk) override {
    if (!started_ || exchange_->finished || exchange_->head || cut_ || chunk.empty()) return;
    if (pending_bytes() + chunk.size() > connection().shared().options.max_stream_pending_bytes) {
      Log(LogLevel::kWarning, "http_slow_reader_cut", {{"pending_bytes", pending_bytes()}});
      cut_ = true;
      return connection().Abort();
    }
    if (exchange_->chunked) {
      std::array<char, 20> size{};
      int n = std::snprintf(size.data(), size.size(), "%zx\r\n", chunk.size());
      chunk.insert(0, size.data(), static_cast<size_t>(n));
      chunk += "\r\n";
    }
    connection().Write(std::move(chunk), false, false);
  }

  void End() override {
    if (!started_ || exchange_->finished) return;
    exchange_->finished = true;
    connection().Write(exchange_->chunked && !exchange_->head ? "0\r\n\r\n" : "", true, keep_alive_);
  }

  size_t pending_bytes() const override { return exchange_->connection->pending_bytes(); }

  void OnDisconnect(std::function<void()> callback) override {
    exchange_->on_disconnect = std::move(callback);
    if (exchange_->gone) {
      connection().shared().executor.Post([exchange = exchange_] { exchange->ClientGone(); });
    }
  }

 private:
  Connection& connection() const { return *exchange_->connection; }
  bool KeepAlive() const { return exchange_->keep_alive && !exchange_->gone && !connection().shared().draining.load(); }

  const std::shared_ptr<Exchange> exchange_;
  bool started_ = false;
  bool keep_alive_ = false;
  bool cut_ = false;  // for reading too slowly
};

}  // namespace

void Exchange::ClientGone() {
  gone = true;
  if (finished || !on_disconnect) return;
  auto callback = std::move(on_disconnect);
  on_disconnect = nullptr;
  callback();
}

std::string FormatHead(int status, const std::vector<Header>& headers, const std::string& request_id, bool keep_alive) {
  std::string head = "HTTP/1.1 " + std::to_string(status) + " ";
  head += ReasonPhrase(status);
  head += "\r\nDate: " + DateNow() + "\r\nX-Request-Id: " + request_id + "\r\nRequest-Id: " + request_id + "\r\n";
  for (const Header& header : headers) {
    AppendClean(head, header.name);
    head += ": ";
    AppendClean(head, header.value);
    head += "\r\n";
  }
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

std::unique_ptr<Responder> MakeResponder(std::shared_ptr<Exchange> exchange) {
  return std::make_unique<ConnectionResponder>(std::move(exchange));
}

}  // namespace millrace::http
