#include "common/transfer/ucx/network_lane.h"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/random.h"

namespace millrace::transfer::ucx {
namespace {

constexpr size_t kFragmentBytes = 512 << 10;
constexpr size_t kWindowBytes = 4 << 20;  // asked for and not yet answered
constexpr Duration kCloseLimit = Milliseconds(100);

}  // namespace

struct NetworkLane::Handlers {
  static Status Install(NetworkLane& lane) {
    MR_RETURN_IF_ERROR(Set(lane, kWelcome, OnWelcome));
    return Set(lane, kBytes, OnBytes);
  }

  static Status Set(NetworkLane& lane, unsigned id, ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                        UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id = id;
    params.flags = UCP_AM_FLAG_WHOLE_MSG;
    params.cb = callback;
    params.arg = &lane;
    return UcxStatus(ucp_worker_set_am_recv_handler(lane.worker_->get(), &params), "ucp_worker_set_am_recv_handler");
  }

  static ucs_status_t OnWelcome(void* lane, const void* header, size_t header_size, void*, size_t,
                                const ucp_am_recv_param_t*) {
    WelcomeHeader welcome;
    if (header_size != sizeof welcome) return UCS_OK;
    std::memcpy(&welcome, header, sizeof welcome);
    static_cast<NetworkLane*>(lane)->OnWelcome(welcome);
    return UCS_OK;
  }

  static ucs_status_t OnBytes(void* argument, const void* header, size_t header_size, void* data, size_t size,
                              const ucp_am_recv_param_t* param) {
    auto& lane = *static_cast<NetworkLane*>(argument);
    BytesHeader bytes;
    if (header_size != sizeof bytes) return UCS_OK;
    std::memcpy(&bytes, header, sizeof bytes);
    Fragment* const fragment = lane.Expect(bytes, size);
    if (fragment == nullptr) return UCS_OK;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      if (size > 0) std::memcpy(fragment->into.data(), data, size);
      lane.FinishFragment(bytes.request, OkStatus());
      return UCS_OK;
    }
    fragment->receiving = true;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb.recv_am = OnReceived;
    params.user_data = fragment;
    void* const request =
        ucp_am_recv_data_nbx(lane.worker_->get(), data, fragment->into.data(), fragment->into.size(), &params);
    if (!UCS_PTR_IS_PTR(request)) {
      lane.FinishFragment(bytes.request,
                          request == nullptr ? OkStatus() : UcxStatus(UCS_PTR_STATUS(request), "receiving"));
    }
    return UCS_OK;
  }

  static void OnReceived(void* request, ucs_status_t status, size_t, void* argument) {
    auto* fragment = static_cast<Fragment*>(argument);
    fragment->lane->FinishFragment(fragment->request, UcxStatus(status, "receiving"));
    ucp_request_free(request);
  }
};

NetworkLane::NetworkLane(const NetworkContext& context, Reactor& reactor, TransportId peer,
                         std::vector<std::string> sockets)
    : context_(context), reactor_(reactor), peer_(peer), sockets_(std::move(sockets)) {}

NetworkLane::~NetworkLane() {
  Fail(Cancelled("ucx: the link was destroyed"));
  CompleteFinished();
  reactor_.Remove(this);
}

void NetworkLane::Open() { TrySocket(); }

void NetworkLane::TrySocket() {
  Status opened = Connect();
  if (opened.ok()) opened = reactor_.Add(this);
  if (!opened.ok()) Fail(opened);
}

Status NetworkLane::Connect() {
  MR_ASSIGN_OR_RETURN(worker_, NetworkWorker::Create(context_));
  MR_RETURN_IF_ERROR(Handlers::Install(*this));
  endpoint_.on_error = [this](const Status& status) {
    if (failed_.ok()) failed_ = status.Annotate(sockets_[socket_]);
  };
  MR_RETURN_IF_ERROR(worker_->Connect(sockets_[socket_], endpoint_));
  const HelloHeader hello{kWireVersion, 0, peer_};
  return sends_.Send(endpoint_.ep, kHello, AsMessage(hello), {}, 0);
}

void NetworkLane::Get(uint64_t region, uint64_t offset, std::span<std::byte> into, Completion done) {
  auto& list = failed_.ok() && !into.empty() ? gets_ : finished_;
  list.push_back({.region = region, .offset = offset, .into = into, .done = std::move(done), .status = failed_});
  Pump();
  reactor_.Wake(this);
}

bool NetworkLane::Work() {
  const bool more = worker_ != nullptr && worker_->Progress();
  if (!failed_.ok() && worker_ != nullptr) {
    if (welcome_ || socket_ + 1 == sockets_.size()) {
      Fail(failed_);
    } else {
      CloseWorker();
      ++socket_;
      failed_ = OkStatus();
      TrySocket();
    }
  }
  Pump();
  CompleteFinished();
  return more || !finished_.empty();
}

void NetworkLane::Pump() {
  if (!welcome_ || !failed_.ok()) return;
  for (auto get = gets_.begin(); get != gets_.end(); ++get) {
    while (get->status.ok() && get->asked < get->into.size()) {
      if (bytes_in_flight_ >= kWindowBytes || !failed_.ok()) return;
      Ask(get);
    }
  }
}

void NetworkLane::Ask(std::list<ActiveGet>::iterator get) {
  const size_t size = std::min(kFragmentBytes, get->into.size() - get->asked);
  const uint64_t request = next_request_++;
  const RequestHeader header{get->region, get->offset + get->asked, size, request};
  fragments_[request] = {.lane = this, .request = request, .get = get, .into = get->into.subspan(get->asked, size)};
  get->asked += size;
  ++get->outstanding;
  bytes_in_flight_ += size;
  if (Status status = sends_.Send(endpoint_.ep, kRequest, AsMessage(header), {}, 0); !status.ok()) {
    failed_ = std::move(status);
  }
}

void NetworkLane::OnWelcome(const WelcomeHeader& header) {
  switch (static_cast<Code>(header.code)) {
    case Code::kOk:
      welcome_ = true;
      lanes_ = NetworkWorker::Lanes(endpoint_);
      return;
    case Code::kNotFound:
      failed_ = Status(Code::kUnavailable, Reason::kPeerLost, "ucx: another process answers at the peer's address");
      return;
    default:
      failed_ = FailedPrecondition("ucx: the peer speaks version " + std::to_string(header.version) +
                                   " of the transfer protocol, this build " + std::to_string(kWireVersion));
  }
}

// The fragment that an answer belongs to, when its bytes can be taken.
NetworkLane::Fragment* NetworkLane::Expect(const BytesHeader& header, size_t size) {
  const auto it = fragments_.find(header.request);
  if (it == fragments_.end() || it->second.receiving) return nullptr;
  const auto code = static_cast<Code>(header.code);
  if (code == Code::kOk && size == it->second.into.size()) return &it->second;
  if (code == Code::kOk) {
    FinishFragment(header.request, DataLoss("ucx: the peer answered with another number of bytes"));
  } else if (code == Code::kNotFound) {
    FinishFragment(header.request, NotFound("ucx: the peer no longer offers the region"));
  } else {
    FinishFragment(header.request, Status(code, "ucx: the peer refused the read"));
  }
  return nullptr;
}

void NetworkLane::FinishFragment(uint64_t request, const Status& status) {
  const auto it = fragments_.find(request);
  if (it == fragments_.end()) return;
  const auto get = it->second.get;
  bytes_in_flight_ -= it->second.into.size();
  fragments_.erase(it);
  --get->outstanding;
  if (!status.ok() && get->status.ok()) get->status = status;
  const bool all_asked = get->asked == get->into.size() || !get->status.ok();
  if (all_asked && get->outstanding == 0) finished_.splice(finished_.end(), gets_, get);
}

// Afterwards UCX writes to no destination any more.
void NetworkLane::CloseWorker() {
  reactor_.Remove(this);
  if (worker_ == nullptr) return;
  worker_->Abort(endpoint_);
  worker_->ProgressUntil([this] { return sends_.outstanding() == 0; }, kCloseLimit);
  worker_.reset();
}

// Ends the connection, then fails every get: their destinations are free again when they complete.
void NetworkLane::Fail(Status status) {
  if (failed_.ok()) failed_ = status;
  CloseWorker();
  if (const Status added = reactor_.Add(this); !added.ok()) failed_ = added;
  fragments_.clear();
  for (ActiveGet& get : gets_) {
    if (get.status.ok()) get.status = status;
  }
  finished_.splice(finished_.end(), gets_);
  reactor_.Wake(this);
}

void NetworkLane::CompleteFinished() {
  std::list<ActiveGet> finished = std::move(finished_);
  finished_.clear();
  for (ActiveGet& get : finished) get.done(get.status);
}

}  // namespace millrace::transfer::ucx
