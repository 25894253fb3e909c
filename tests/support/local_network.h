#pragma once
// LocalNetwork: the streams of common/peer between runtimes of one process, for tests. Addresses are plain names; one
// address serves any number of protocols. Follows the contract of peer/stream.h, one message a task, so a run over
// ManualExecutors is deterministic. Thread-safe with EventLoops.
//
// A process is its address: give MakeDialer the address of the caller, then Kill and Stall reach the streams it opened
// as well as those it serves. Runtimes must be destroyed on (or after the end of) their executor, and before the
// network's owner drops it; streams may outlive the LocalNetwork object.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/executor.h"
#include "common/peer/stream.h"
#include "tests/support/local_streams.h"

namespace millrace::support {

template <class P>
class LocalDialer;

class LocalNetwork {
 public:
  LocalNetwork() : state_(std::make_shared<LocalNetworkState>()) {}

  // Serves P at `address`; streams are accepted on `executor`. Replaces an earlier service of the same protocol there
  // and lifts an earlier Kill. `service` must stay valid until Kill or another Serve of P there.
  template <class P>
  void Serve(const std::string& address, Executor& executor, peer::Service<P>& service) {
    AddService(address, P::kName, {&executor, static_cast<void*>(&service)});
  }

  // For the process at `from`; handlers of its streams run on `executor`.
  template <class P>
  std::unique_ptr<peer::Dialer<P>> MakeDialer(Executor& executor, const std::string& from) {
    return std::make_unique<LocalDialer<P>>(state_, executor, from);
  }

  // Every stream from or to `address` closes with kPeerLost at both ends, its services are gone and new streams fail
  // until Serve.
  void Kill(const std::string& address);
  // Nothing from or to `address` is delivered and nothing closes, until Resume; then all comes in order.
  void Stall(const std::string& address);
  void Resume(const std::string& address);
  // The same for the streams between two addresses only.
  void StallBetween(const std::string& a, const std::string& b);
  void ResumeBetween(const std::string& a, const std::string& b);
  // New streams to `address` fail with kPeerLost; open ones stay.
  void RefuseConnects(const std::string& address);
  void AllowConnects(const std::string& address);
  // Streams with either end at `address` that are still open.
  size_t open_streams(const std::string& address) const;

 private:
  void AddService(const std::string& address, const char* protocol, LocalService service);
  std::vector<std::shared_ptr<LocalConnection>> Connections() const;

  std::shared_ptr<LocalNetworkState> state_;
};

template <class P>
class LocalDialer final : public peer::Dialer<P> {
 public:
  LocalDialer(std::shared_ptr<LocalNetworkState> state, Executor& executor, std::string from)
      : state_(std::move(state)), executor_(executor), from_(std::move(from)) {}

  std::unique_ptr<peer::ClientStream<P>> Open(const std::string& address,
                                              peer::StreamHandler<typename P::Down> handler) override {
    auto streams = std::make_shared<LocalStreams<P>>(state_);
    streams->client = from_;
    streams->server = address;
    streams->to_client.executor = &executor_;
    streams->to_client.handler = std::make_shared<peer::StreamHandler<typename P::Down>>(std::move(handler));
    {
      std::lock_guard lock(state_->mutex);
      const auto found = state_->services.find({address, P::kName});
      const bool refused = found == state_->services.end() || state_->RefusedLocked(address);
      streams->to_server.executor = refused ? &executor_ : found->second.executor;
      streams->accept_pending = !refused;
      std::erase_if(state_->connections, [](const auto& connection) { return connection.expired(); });
      state_->connections.push_back(streams);
      if (refused) streams->LoseLocked(LocalPeerLost(address));
      streams->KickLocked();
    }
    return std::make_unique<LocalClientEnd<P>>(std::move(streams));
  }

 private:
  std::shared_ptr<LocalNetworkState> state_;
  Executor& executor_;
  const std::string from_;
};

}  // namespace millrace::support
