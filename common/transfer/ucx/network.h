#pragma once
// UCP context and workers of the network lanes: active messages only, so no peer can name an address of this process.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"

struct ucp_context;
struct ucp_worker;
struct ucp_ep;

namespace millrace::transfer::ucx {

// UCX logs nothing unless the environment variable UCX_LOG_LEVEL is set. Called before any other use of UCX.
void SilenceUcx();

// "ucx: CALL: reason", with kPeerLost when the connection is gone.
Status UcxStatus(int ucs_status, const std::string& call);

class NetworkContext {
 public:
  // `tls` and `devices` as UCX takes them; empty devices = UCX's own choice.
  static StatusOr<std::unique_ptr<NetworkContext>> Open(const std::string& tls, const std::string& devices);
  ~NetworkContext();
  NetworkContext(const NetworkContext&) = delete;
  NetworkContext& operator=(const NetworkContext&) = delete;
  ucp_context* get() const { return context_; }

 private:
  explicit NetworkContext(ucp_context* context) : context_(context) {}
  ucp_context* const context_;
};

// A worker with its wake-up descriptor. Only on the reactor's thread.
class NetworkWorker {
 public:
  static StatusOr<std::unique_ptr<NetworkWorker>> Create(const NetworkContext& context);
  // Ends whatever is outstanding on it: afterwards UCX touches no buffer that was given to this worker.
  ~NetworkWorker();
  NetworkWorker(const NetworkWorker&) = delete;
  NetworkWorker& operator=(const NetworkWorker&) = delete;

  ucp_worker* get() const { return worker_; }
  int fd() const { return fd_; }
  // True when there may be more to do at once.
  bool Progress();
  // False when events are waiting.
  bool Arm();
  // Progresses until `done` or the time is over; asleep while nothing happens. Returns done().
  bool ProgressUntil(const std::function<bool()>& done, Duration limit);
  StatusOr<std::string> Address() const;

  // An endpoint in error mode "peer". `on_error` is called at most once, inside Progress().
  struct Endpoint {
    ucp_ep* ep = nullptr;
    std::function<void(Status)> on_error;
  };
  Status Open(const std::string& worker_address, Endpoint& endpoint);
  // Drops the connection without waiting for the peer; sends under way complete with an error in Progress().
  void Abort(Endpoint& endpoint);
  // Transport names of the endpoint's lanes: "tcp".
  static std::vector<std::string> Lanes(const Endpoint& endpoint);

 private:
  NetworkWorker(ucp_worker* worker, int fd) : worker_(worker), fd_(fd) {}
  ucp_worker* const worker_;
  const int fd_;
};

// Active messages under way, whose header and data must live until they are sent. Only on the reactor's thread;
// destroyed after the worker.
class SendBook {
 public:
  // `data` may be null. `tag` groups messages for outstanding(tag).
  Status Send(ucp_ep* ep, unsigned id, std::string header, std::span<const std::byte> data, uint64_t tag);
  size_t outstanding() const { return sends_.size(); }
  size_t outstanding(uint64_t tag) const;

 private:
  struct Sent {
    SendBook* book = nullptr;
    std::list<Sent>::iterator self;
    std::string header;
    uint64_t tag = 0;
  };
  static void OnSent(void* request, void* sent);

  std::list<Sent> sends_;
};

// A header as the bytes of a message.
template <class Header>
std::string AsMessage(const Header& header) {
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

}  // namespace millrace::transfer::ucx
