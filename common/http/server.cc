#include "common/http/server.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/http/connection.h"

namespace millrace::http {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using asio::ip::tcp;

namespace {

constexpr Duration kAcceptRetry = Milliseconds(100);

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
    auto connection = std::make_shared<Connection>(std::move(*socket), loops_[loop], shared_);
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
                                 false) +
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

ErrorBody PlainTextError(int, const std::string& message) { return {"text/plain; charset=utf-8", message + "\n"}; }

StatusOr<std::unique_ptr<Server>> Server::Listen(ServerOptions options, Executor& executor, Handler handler) {
  auto server = std::make_unique<AsioServer>(std::move(options), executor, std::move(handler));
  MR_RETURN_IF_ERROR(server->Bind());
  server->Run();
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace millrace::http
