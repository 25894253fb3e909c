// A peer process for rpc_stall_test: serves Decode on a free port of loopback, prints the port, and on each stream
// sends a Heartbeat with growing progress every 20 ms until the process is ended.
#include <cstdio>
#include <deque>
#include <memory>

#include "common/base/event_loop.h"
#include "common/rpc/server.h"

namespace {

using namespace millrace;
using peer::DecodeProtocol;

class Ticker final : public peer::Service<DecodeProtocol> {
 public:
  explicit Ticker(Executor& executor) : executor_(executor) {}

  peer::StreamHandler<DecodeProtocol::Up> Accept(std::unique_ptr<peer::ServerStream<DecodeProtocol>> stream) override {
    streams_.push_back(std::move(stream));
    Tick(streams_.size() - 1, 1);
    return {};
  }

 private:
  void Tick(size_t index, uint64_t progress) {
    streams_[index]->Send(peer::Heartbeat{.progress = progress});
    executor_.PostAfter(Milliseconds(20), [this, index, progress] { Tick(index, progress + 1); });
  }

  Executor& executor_;
  std::deque<std::unique_ptr<peer::ServerStream<DecodeProtocol>>> streams_;
};

}  // namespace

int main() {
  EventLoop loop("peer");
  Ticker ticker(loop);
  rpc::Server server;
  server.AddService<DecodeProtocol>(ticker, loop);
  const StatusOr<uint16_t> port = server.Start("127.0.0.1", 0);
  if (!port.ok()) return 1;
  std::printf("%u\n", unsigned{*port});
  std::fflush(stdout);
  return std::getchar() == EOF ? 0 : 2;  // until the test goes
}
