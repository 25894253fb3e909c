#pragma once
// Both ends of a stream in one process, over loopback, each end on its own event loop.

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "common/base/event_loop.h"
#include "common/peer/protocols.h"
#include "common/rpc/dialer.h"
#include "common/rpc/server.h"

namespace millrace::rpc {

constexpr std::chrono::seconds kPatience{30};  // a test that waits longer has failed

// Values handed from event loops to the test.
template <class T>
class Mailbox {
 public:
  void Put(T value) {
    const std::lock_guard lock(mutex_);
    values_.push_back(std::move(value));
    arrived_.notify_all();
  }
  // The next value; nullopt when none came in time.
  std::optional<T> Take(std::chrono::milliseconds patience = kPatience) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, patience, [&] { return !values_.empty(); })) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    return value;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<T> values_;
};

inline void RunOn(EventLoop& loop, const std::function<void()>& task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

// True once `holds` does; polled on `loop`, which also paces it.
inline bool Eventually(EventLoop& loop, const std::function<bool()>& holds) {
  const TimePoint end = loop.Now() + Duration(kPatience);
  while (loop.Now() < end) {
    bool held = false;
    std::promise<void> later;
    RunOn(loop, [&] {
      held = holds();
      loop.PostAfter(Milliseconds(5), [&] { later.set_value(); });
    });
    later.get_future().wait();
    if (held) return true;
  }
  return false;
}

// One end of a stream: keeps the stream and what arrived.
template <class In, class Out>
struct End {
  Mailbox<In> messages;
  Mailbox<Status> closed;
  std::unique_ptr<peer::Stream<Out>> stream;  // belongs to the loop
  std::function<void(const In&)> on_message;  // on the loop, before it shows in `messages`
  std::function<void(const Status&)> on_closed;

  peer::StreamHandler<In> Handler() {
    return {.on_message =
                [this](In message) {
                  if (on_message) on_message(message);
                  messages.Put(std::move(message));
                },
            .on_closed =
                [this](Status status) {
                  if (on_closed) on_closed(status);
                  closed.Put(std::move(status));
                }};
  }
};

template <class Protocol>
using ClientEnd = End<typename Protocol::Down, typename Protocol::Up>;
template <class Protocol>
using ServerEnd = End<typename Protocol::Up, typename Protocol::Down>;

// Keeps the ends of the streams it accepted. `on_accept` runs on the service's loop.
template <class Protocol>
class RecordingService final : public peer::Service<Protocol> {
 public:
  using ServedEnd = ServerEnd<Protocol>;
  std::function<void(ServedEnd&)> on_accept;
  Mailbox<ServedEnd*> accepted;

  peer::StreamHandler<typename Protocol::Up> Accept(std::unique_ptr<peer::ServerStream<Protocol>> stream) override {
    ends_.push_back(std::make_unique<ServedEnd>());
    ServedEnd& end = *ends_.back();
    end.stream = std::move(stream);
    if (on_accept) on_accept(end);
    accepted.Put(&end);
    return end.Handler();
  }
  void DropAll() {
    for (auto& end : ends_) end->stream.reset();
  }

 private:
  std::deque<std::unique_ptr<ServedEnd>> ends_;
};

template <class Protocol>
class RpcTest : public ::testing::Test {
 protected:
  explicit RpcTest(const ServerOptions& options = {}) : server(std::make_unique<Server>(options)) {
    server->AddService<Protocol>(service, server_loop);
    StatusOr<uint16_t> started = server->Start("127.0.0.1", 0);
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    if (started.ok()) address = "127.0.0.1:" + std::to_string(*started);
    dialer = MakeDialer<Protocol>(client_loop);
  }
  ~RpcTest() override {
    RunOn(client_loop, [&] { clients.clear(); });
    RunOn(server_loop, [&] { service.DropAll(); });
    server->Shutdown(Duration(0));
  }

  ClientEnd<Protocol>& Open(const std::string& to = "") {
    ClientEnd<Protocol>* end = nullptr;
    RunOn(client_loop, [&] {
      clients.push_back(std::make_unique<ClientEnd<Protocol>>());
      end = clients.back().get();
      end->stream = dialer->Open(to.empty() ? address : to, end->Handler());
    });
    return *end;
  }
  void Send(ClientEnd<Protocol>& end, typename Protocol::Up message) {
    RunOn(client_loop, [&] { end.stream->Send(std::move(message)); });
  }
  void Send(ServerEnd<Protocol>& end, typename Protocol::Down message) {
    RunOn(server_loop, [&] { end.stream->Send(std::move(message)); });
  }

  EventLoop server_loop{"server"};
  EventLoop client_loop{"client"};
  RecordingService<Protocol> service;
  std::unique_ptr<Server> server;
  std::string address;
  std::unique_ptr<peer::Dialer<Protocol>> dialer;
  std::deque<std::unique_ptr<ClientEnd<Protocol>>> clients;  // belongs to client_loop
};

}  // namespace millrace::rpc
