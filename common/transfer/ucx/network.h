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
struct ucp_listener;
struct ucp_conn_request;

namespace millrace::transfer::ucx {

// UCX logs nothing unless the environment variable UCX_LOG_LEVEL is set. Called before any other use of UCX.
void SilenceUcx();

// "ucx: CALL: reason", with kPeerLost when the connection is gone.
Status UcxStatus(int ucs_status, const std::string& call);

class NetworkContext {
 public:
  // `tls` and `devices` as UCX takes them; empty devices = UCX's own choice. kInvalidArgument with param "lanes" or
  // "devices" when there are none such.
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
  // An endpoint in error mode "peer". `on_error` is called at most once, inside Progress().
  struct Endpoint {
    ucp_ep* ep = nullptr;
    std::function<void(Status)> on_error;
  };
  Status Connect(const std::string& socket, Endpoint& endpoint);
  Status Accept(ucp_conn_request* request, Endpoint& endpoint);
  // Drops the connection without waiting for the peer; sends under way complete with an error in Progress().
  void Abort(Endpoint& endpoint);
  // Transport names of the endpoint's lanes: "tcp".
  static std::vector<std::string> Lanes(const Endpoint& endpoint);

 private:
  NetworkWorker(ucp_worker* worker, int fd) : worker_(worker), fd_(fd) {}
  Status Open(void* params, Endpoint& endpoint);
  ucp_worker* const worker_;
  const int fd_;
};

// Takes connections on the given network devices (all when none is named or known).
class NetworkListener {
 public:
  // `on_request` is called inside Progress(); every request is to be given to NetworkWorker::Accept or Reject after
  // Progress() returned.
  static StatusOr<std::unique_ptr<NetworkListener>> Create(NetworkWorker& worker, const std::string& devices,
                                                           std::function<void(ucp_conn_request*)> on_request);
  ~NetworkListener();  // before the worker's
  NetworkListener(const NetworkListener&) = delete;
  NetworkListener& operator=(const NetworkListener&) = delete;
  void Reject(ucp_conn_request* request);
  // "10.0.0.7:4711" for each address of the devices, loopback last.
  const std::vector<std::string>& sockets() const { return sockets_; }

 private:
  explicit NetworkListener(std::function<void(ucp_conn_request*)> on_request) : on_request_(std::move(on_request)) {}

  const std::function<void(ucp_conn_request*)> on_request_;
  std::vector<std::string> sockets_;
  ucp_listener* listener_ = nullptr;
};

// True for "127.0.0.1:4711".
bool IsLoopbackSocket(const std::string& socket);

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
