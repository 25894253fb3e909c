#include "common/transfer/ucx/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace millrace::transfer::ucx {
namespace {

constexpr int kProgressCalls = 32;  // of one Progress()

StatusOr<sockaddr_in> ParseSocket(const std::string& socket) {
  const size_t colon = socket.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  uint16_t port = 0;
  const char* const end = socket.data() + socket.size();
  if (colon == std::string::npos || inet_pton(AF_INET, socket.substr(0, colon).c_str(), &address.sin_addr) != 1 ||
      std::from_chars(socket.data() + colon + 1, end, port).ptr != end || port == 0) {
    return InvalidArgument("ucx: '" + socket + "' is not an IPv4 address and port");
  }
  address.sin_port = htons(port);
  return address;
}

bool IsLoopback(in_addr address) { return (ntohl(address.s_addr) >> 24) == IN_LOOPBACKNET; }

// IPv4 addresses of the devices of the comma-separated list that are up, loopback last; of all devices when the list
// names none of them (RDMA devices have other names than their network interfaces).
std::vector<in_addr> DeviceAddresses(const std::string& devices) {
  std::vector<in_addr> named;
  std::vector<in_addr> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    const in_addr address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    all.push_back(address);
    if (("," + devices + ",").find("," + std::string(entry->ifa_name) + ",") != std::string::npos) {
      named.push_back(address);
    }
  }
  freeifaddrs(list);
  std::vector<in_addr> addresses = named.empty() ? std::move(all) : std::move(named);
  std::stable_partition(addresses.begin(), addresses.end(), [](in_addr address) { return !IsLoopback(address); });
  return addresses;
}

void OnEndpointError(void* argument, ucp_ep_h, ucs_status_t status) {
  auto* endpoint = static_cast<NetworkWorker::Endpoint*>(argument);
  if (endpoint->on_error) endpoint->on_error(UcxStatus(status, "connection"));
}

}  // namespace

void SilenceUcx() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  });
}

Status UcxStatus(int ucs_status, const std::string& call) {
  const auto status = static_cast<ucs_status_t>(ucs_status);
  const std::string message = "ucx: " + call + ": " + ucs_status_string(status);
  switch (status) {
    case UCS_OK:
      return OkStatus();
    case UCS_ERR_NO_MEMORY:
      return {Code::kResourceExhausted, message};
    case UCS_ERR_CANCELED:
      return {Code::kCancelled, message};
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return {Code::kInvalidArgument, message};
    default:
      return {Code::kUnavailable, Reason::kPeerLost, message};
  }
}

StatusOr<std::unique_ptr<NetworkContext>> NetworkContext::Open(const std::string& tls, const std::string& devices) {
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return UcxStatus(status, "ucp_config_read");
  }
  ucs_status_t status = ucp_config_modify(config, "TLS", tls.c_str());
  if (status == UCS_OK && !devices.empty()) status = ucp_config_modify(config, "NET_DEVICES", devices.c_str());
  // A connect() to a host that is down must not hold the thread.
  if (status == UCS_OK) status = ucp_config_modify(config, "TCP_CONN_NB", "y");
  ucp_context_h context = nullptr;
  if (status == UCS_OK) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.mt_workers_shared = 1;
    status = ucp_init(&params, config, &context);
  }
  ucp_config_release(config);
  if (status != UCS_OK) {
    Status failed =
        UcxStatus(status, "opening lanes '" + tls + "'" + (devices.empty() ? "" : " on devices '" + devices + "'"));
    if (status != UCS_ERR_NO_DEVICE) return failed;
    const bool lanes_work = !devices.empty() && Open(tls, "").ok();
    return InvalidArgument(failed.message()).WithParam(lanes_work ? "devices" : "lanes");
  }
  return std::unique_ptr<NetworkContext>(new NetworkContext(context));
}

NetworkContext::~NetworkContext() { ucp_cleanup(context_); }

StatusOr<std::unique_ptr<NetworkWorker>> NetworkWorker::Create(const NetworkContext& context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  if (const ucs_status_t status = ucp_worker_create(context.get(), &params, &worker); status != UCS_OK) {
    return UcxStatus(status, "ucp_worker_create");
  }
  int fd = -1;
  if (const ucs_status_t status = ucp_worker_get_efd(worker, &fd); status != UCS_OK) {
    ucp_worker_destroy(worker);
    return UcxStatus(status, "ucp_worker_get_efd");
  }
  return std::unique_ptr<NetworkWorker>(new NetworkWorker(worker, fd));
}

NetworkWorker::~NetworkWorker() { ucp_worker_destroy(worker_); }

bool NetworkWorker::Progress() {
  for (int i = 0; i < kProgressCalls; ++i) {
    if (ucp_worker_progress(worker_) == 0) return false;
  }
  return true;
}

bool NetworkWorker::Arm() { return ucp_worker_arm(worker_) == UCS_OK; }

bool NetworkWorker::ProgressUntil(const std::function<bool()>& done, Duration limit) {
  const TimePoint deadline = SystemClock().Now() + limit;
  for (;;) {
    const bool more = Progress();
    if (done()) return true;
    const TimePoint now = SystemClock().Now();
    if (now >= deadline) return false;
    if (more || !Arm()) continue;
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    poll(&wait, 1, static_cast<int>(std::max(1.0, ToMilliseconds(deadline - now))));
  }
}

Status NetworkWorker::Open(void* params, Endpoint& endpoint) {
  auto* ep_params = static_cast<ucp_ep_params_t*>(params);
  ep_params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  ep_params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ep_params->err_handler = {.cb = OnEndpointError, .arg = &endpoint};
  return UcxStatus(ucp_ep_create(worker_, ep_params, &endpoint.ep), "ucp_ep_create");
}

Status NetworkWorker::Connect(const std::string& socket, Endpoint& endpoint) {
  MR_ASSIGN_OR_RETURN(const sockaddr_in address, ParseSocket(socket));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {.addr = reinterpret_cast<const sockaddr*>(&address), .addrlen = sizeof address};
  return Open(&params, endpoint).Annotate(socket);
}

Status NetworkWorker::Accept(ucp_conn_request* request, Endpoint& endpoint) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  return Open(&params, endpoint);
}

void NetworkWorker::Abort(Endpoint& endpoint) {
  if (endpoint.ep == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const request = ucp_ep_close_nbx(std::exchange(endpoint.ep, nullptr), &params);
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
}

std::vector<std::string> NetworkWorker::Lanes(const Endpoint& endpoint) {
  std::vector<std::string> lanes;
  char* text = nullptr;
  size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  if (stream == nullptr) return lanes;
  if (endpoint.ep != nullptr) ucp_ep_print_info(endpoint.ep, stream);
  std::fclose(stream);
  // "#                 lane[0]:  0:tcp/lo.0 md[0]      -> md[0]/tcp/sysdev[255] am am_bw#0"
  std::string_view rest(text, size);
  for (size_t at = rest.find("lane["); at != std::string_view::npos; at = rest.find("lane[")) {
    rest.remove_prefix(at + 5);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    const size_t slash = line.find('/');
    const size_t colon = slash == std::string_view::npos ? slash : line.rfind(':', slash);
    if (colon != std::string_view::npos) lanes.emplace_back(line.substr(colon + 1, slash - colon - 1));
  }
  std::free(text);
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  return lanes;
}

StatusOr<std::unique_ptr<NetworkListener>> NetworkListener::Create(NetworkWorker& worker, const std::string& devices,
                                                                   std::function<void(ucp_conn_request*)> on_request) {
  const std::vector<in_addr> addresses = DeviceAddresses(devices);
  if (addresses.empty()) return Unavailable("ucx: no network device is up");
  std::unique_ptr<NetworkListener> listener(new NetworkListener(std::move(on_request)));
  sockaddr_in bind_to{};
  bind_to.sin_family = AF_INET;
  bind_to.sin_addr = addresses.size() == 1 ? addresses[0] : in_addr{htonl(INADDR_ANY)};
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {.addr = reinterpret_cast<const sockaddr*>(&bind_to), .addrlen = sizeof bind_to};
  params.conn_handler.cb = [](ucp_conn_request_h request, void* self) {
    static_cast<NetworkListener*>(self)->on_request_(request);
  };
  params.conn_handler.arg = listener.get();
  if (const ucs_status_t status = ucp_listener_create(worker.get(), &params, &listener->listener_); status != UCS_OK) {
    return UcxStatus(status, "ucp_listener_create");
  }
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const ucs_status_t status = ucp_listener_query(listener->listener_, &attributes); status != UCS_OK) {
    return UcxStatus(status, "ucp_listener_query");
  }
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(&attributes.sockaddr)->sin_port);
  for (const in_addr address : addresses) {
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &address, text, sizeof text);
    listener->sockets_.push_back(std::string(text) + ":" + std::to_string(port));
  }
  return listener;
}

NetworkListener::~NetworkListener() {
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
}

void NetworkListener::Reject(ucp_conn_request* request) { ucp_listener_reject(listener_, request); }

bool IsLoopbackSocket(const std::string& socket) {
  const StatusOr<sockaddr_in> address = ParseSocket(socket);
  return address.ok() && IsLoopback(address->sin_addr);
}

void SendBook::OnSent(void* request, void* argument) {
  auto* sent = static_cast<Sent*>(argument);
  sent->book->sends_.erase(sent->self);
  ucp_request_free(request);
}

Status SendBook::Send(ucp_ep* ep, unsigned id, std::string header, std::span<const std::byte> data, uint64_t tag) {
  const auto sent = sends_.insert(sends_.end(), {.book = this, .self = {}, .header = std::move(header), .tag = tag});
  sent->self = sent;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_REPLY;
  params.cb.send = [](void* request, ucs_status_t, void* argument) { OnSent(request, argument); };
  params.user_data = &*sent;
  void* const request =
      ucp_am_send_nbx(ep, id, sent->header.data(), sent->header.size(), data.data(), data.size(), &params);
  if (UCS_PTR_IS_PTR(request)) return OkStatus();
  sends_.erase(sent);
  return request == nullptr ? OkStatus() : UcxStatus(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
}

size_t SendBook::outstanding(uint64_t tag) const {
  return static_cast<size_t>(std::count_if(sends_.begin(), sends_.end(), [&](const Sent& s) { return s.tag == tag; }));
}

}  // namespace millrace::transfer::ucx
