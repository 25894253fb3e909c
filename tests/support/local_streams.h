#pragma once
// The two ends of one stream of LocalNetwork. Tests use local_network.h.

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/executor.h"
#include "common/peer/stream.h"

namespace millrace::support {

// One stream between two addresses. All fields of it and of its subclasses are guarded by LocalNetworkState::mutex.
class LocalConnection {
 public:
  virtual ~LocalConnection() = default;
  // Both ends close, the client with `why`; what was queued is dropped.
  virtual void LoseLocked(const Status& why) = 0;
  virtual void KickLocked() = 0;  // schedules what can be delivered now
  bool open() const { return up_open || down_open; }

  std::string client;
  std::string server;
  bool up_open = true;    // the client may send
  bool down_open = true;  // the server may send
};

struct LocalService {
  Executor* executor = nullptr;
  void* service = nullptr;  // peer::Service<P>* of the protocol named in the key
};

struct LocalNetworkState {
  bool StalledLocked(const LocalConnection& connection) const;
  bool RefusedLocked(const std::string& address) const { return refused.contains(address); }

  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, LocalService> services;  // by address, protocol
  std::set<std::string> stalled;
  std::set<std::pair<std::string, std::string>> stalled_pairs;
  std::set<std::string> refused;
  std::list<std::weak_ptr<LocalConnection>> connections;
};

Status LocalPeerLost(const std::string& address);

// What one end of a connection receives.
template <class In>
struct LocalInbox {
  Executor* executor = nullptr;
  std::shared_ptr<peer::StreamHandler<In>> handler;  // null: not accepted yet, or destroyed
  std::deque<In> messages;
  std::optional<Status> end;  // delivered after `messages`
  bool scheduled = false;
  bool over = false;  // nothing is delivered any more
};

template <class P>
class LocalStreams final : public LocalConnection, public std::enable_shared_from_this<LocalStreams<P>> {
 public:
  using Up = typename P::Up;
  using Down = typename P::Down;

  explicit LocalStreams(std::shared_ptr<LocalNetworkState> state) : state_(std::move(state)) {}

  void LoseLocked(const Status& why) override {
    EndLocked(to_client, why, true);
    EndLocked(to_server, {Code::kCancelled, Reason::kPeerLost, why.message()}, true);
    up_open = down_open = false;
    KickLocked();
  }
  void KickLocked() override {
    if (state_->StalledLocked(*this)) return;
    if (accept_pending) {
      accept_pending = false;
      to_server.executor->Post([self = this->shared_from_this()] { self->Accept(); });
    }
    ScheduleLocked(to_client, &LocalStreams::DeliverToClient);
    ScheduleLocked(to_server, &LocalStreams::DeliverToServer);
  }

  // Sets how an inbox ends; the first failure counts. `drop` discards what was not delivered yet.
  template <class In>
  void EndLocked(LocalInbox<In>& inbox, const Status& status, bool drop) {
    if (inbox.over || (inbox.end && !(drop && inbox.end->ok()))) return;
    if (drop) inbox.messages.clear();
    inbox.end = status;
  }
  template <class In>
  bool PushLocked(LocalInbox<In>& inbox, In message) {
    if (inbox.messages.size() >= peer::kMaxPendingSends) {
      LoseLocked({Code::kResourceExhausted, "stream to '" + server + "': the peer stopped reading"});
      return false;
    }
    if (!inbox.over && !inbox.end) inbox.messages.push_back(std::move(message));
    KickLocked();
    return true;
  }

  LocalNetworkState& state() { return *state_; }

  LocalInbox<Down> to_client;
  LocalInbox<Up> to_server;
  bool accept_pending = true;

 private:
  void DeliverToClient() { Deliver(to_client, &LocalStreams::DeliverToClient); }
  void DeliverToServer() { Deliver(to_server, &LocalStreams::DeliverToServer); }

  template <class In>
  void ScheduleLocked(LocalInbox<In>& inbox, void (LocalStreams::*deliver)()) {
    if (inbox.over || inbox.scheduled || !inbox.handler || (inbox.messages.empty() && !inbox.end)) return;
    inbox.scheduled = true;
    inbox.executor->Post([self = this->shared_from_this(), deliver] { ((*self).*deliver)(); });
  }

  template <class In>
  void Deliver(LocalInbox<In>& inbox, void (LocalStreams::*deliver)()) {
    std::shared_ptr<peer::StreamHandler<In>> handler;
    std::optional<In> message;
    Status end;
    {
      std::lock_guard lock(state_->mutex);
      inbox.scheduled = false;
      if (inbox.over || state_->StalledLocked(*this)) return;
      handler = inbox.handler;
      if (!inbox.messages.empty()) {
        message = std::move(inbox.messages.front());
        inbox.messages.pop_front();
        inbox.scheduled = true;  // the next one only after this handler returned
      } else {
        end = *inbox.end;
        inbox.over = true;
        inbox.handler = nullptr;
      }
    }
    if (!message) {
      if (handler->on_closed) handler->on_closed(end);
      return;
    }
    if (handler->on_message) handler->on_message(std::move(*message));
    std::lock_guard lock(state_->mutex);
    inbox.scheduled = false;
    if (!state_->StalledLocked(*this)) ScheduleLocked(inbox, deliver);
  }

  void Accept();

  std::shared_ptr<LocalNetworkState> state_;
};

template <class P>
class LocalClientEnd final : public peer::ClientStream<P> {
 public:
  explicit LocalClientEnd(std::shared_ptr<LocalStreams<P>> streams) : streams_(std::move(streams)) {}
  ~LocalClientEnd() override {
    std::shared_ptr<peer::StreamHandler<typename P::Down>> dropped;  // destroyed outside the lock
    std::lock_guard lock(streams_->state().mutex);
    streams_->to_client.over = true;
    dropped = std::move(streams_->to_client.handler);
    CancelLocked("");
  }
  void Send(typename P::Up message) override {
    std::lock_guard lock(streams_->state().mutex);
    if (streams_->up_open) streams_->PushLocked(streams_->to_server, std::move(message));
  }
  void Close(Status status) override {
    std::lock_guard lock(streams_->state().mutex);
    if (!status.ok()) return CancelLocked(": " + status.message());
    if (!streams_->up_open) return;
    streams_->up_open = false;
    streams_->EndLocked(streams_->to_server, status, false);
    streams_->KickLocked();
  }
  size_t pending_sends() const override {
    std::lock_guard lock(streams_->state().mutex);
    return streams_->to_server.messages.size();
  }

 private:
  // The server cannot tell this from a lost connection, as over gRPC.
  void CancelLocked(const std::string& why) {
    if (!streams_->up_open && !streams_->down_open) return;
    streams_->LoseLocked({Code::kCancelled, Reason::kPeerLost, "the client cancelled the stream" + why});
  }
  std::shared_ptr<LocalStreams<P>> streams_;
};

template <class P>
class LocalServerEnd final : public peer::ServerStream<P> {
 public:
  explicit LocalServerEnd(std::shared_ptr<LocalStreams<P>> streams) : streams_(std::move(streams)) {}
  ~LocalServerEnd() override {
    std::shared_ptr<peer::StreamHandler<typename P::Up>> dropped;  // destroyed outside the lock
    std::lock_guard lock(streams_->state().mutex);
    streams_->to_server.over = true;
    dropped = std::move(streams_->to_server.handler);
    EndLocked(Cancelled("the server dropped the stream"));
  }
  void Send(typename P::Down message) override {
    std::lock_guard lock(streams_->state().mutex);
    if (streams_->down_open) streams_->PushLocked(streams_->to_client, std::move(message));
  }
  void Close(Status status) override {
    std::lock_guard lock(streams_->state().mutex);
    EndLocked(status);
  }
  size_t pending_sends() const override {
    std::lock_guard lock(streams_->state().mutex);
    return streams_->to_client.messages.size();
  }

 private:
  void EndLocked(const Status& status) {
    if (!streams_->down_open) return;
    streams_->down_open = streams_->up_open = false;
    streams_->EndLocked(streams_->to_client, status, false);
    streams_->EndLocked(streams_->to_server, status, true);
    streams_->KickLocked();
  }
  std::shared_ptr<LocalStreams<P>> streams_;
};

template <class P>
void LocalStreams<P>::Accept() {
  peer::Service<P>* service = nullptr;
  {
    std::lock_guard lock(state_->mutex);
    if (to_server.end && !to_server.end->ok()) return;  // cancelled or lost before it was seen
    if (state_->StalledLocked(*this)) {
      accept_pending = true;
      return;
    }
    const auto found = state_->services.find({server, P::kName});
    if (found == state_->services.end()) return LoseLocked(LocalPeerLost(server));
    service = static_cast<peer::Service<P>*>(found->second.service);
  }
  auto handler = std::make_shared<peer::StreamHandler<Up>>(
      service->Accept(std::make_unique<LocalServerEnd<P>>(this->shared_from_this())));
  std::lock_guard lock(state_->mutex);
  if (to_server.over) return;
  to_server.handler = std::move(handler);
  KickLocked();
}

}  // namespace millrace::support
