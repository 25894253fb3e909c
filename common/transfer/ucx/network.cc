#include "common/transfer/ucx/network.h"

#include <poll.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace millrace::transfer::ucx {
namespace {

constexpr int kProgressCalls = 32;  // of one Progress()

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
    return UcxStatus(status, "opening lanes '" + tls + "'" + (devices.empty() ? "" : " on devices '" + devices + "'"));
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

StatusOr<std::string> NetworkWorker::Address() const {
  ucp_address_t* address = nullptr;
  size_t size = 0;
  if (const ucs_status_t status = ucp_worker_get_address(worker_, &address, &size); status != UCS_OK) {
    return UcxStatus(status, "ucp_worker_get_address");
  }
  std::string bytes(reinterpret_cast<const char*>(address), size);
  ucp_worker_release_address(worker_, address);
  return bytes;
}

Status NetworkWorker::Open(const std::string& worker_address, Endpoint& endpoint) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = OnEndpointError, .arg = &endpoint};
  return UcxStatus(ucp_ep_create(worker_, &params, &endpoint.ep), "ucp_ep_create");
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

void SendBook::OnSent(void* request, void* argument) {
  auto* sent = static_cast<Sent*>(argument);
  sent->book->sends_.erase(sent->self);
  ucp_request_free(request);
}

Status SendBook::Send(ucp_ep* ep, unsigned id, std::string header, std::span<const std::byte> data, uint64_t tag) {
  const auto sent = sends_.insert(sends_.end(), {.book = this, .self = {}, .header = std::move(header), .tag = tag});
  sent->self = sent;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
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
