#include "common/transfer/ucx/server.h"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/log.h"

namespace millrace::transfer::ucx {
namespace {

constexpr size_t kMaxClients = 4096;
constexpr size_t kMaxSendsPerClient = 1024;
constexpr Duration kDrainLimit = Milliseconds(100);
constexpr Duration kAbortLimit = Milliseconds(500);

}  // namespace

struct Server::Handlers {
  static Status Install(Server& server) {
    MR_RETURN_IF_ERROR(Set(server, kHello, OnHello));
    return Set(server, kRequest, OnRequest);
  }

  static Status Set(Server& server, unsigned id, ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                        UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id = id;
    params.flags = UCP_AM_FLAG_WHOLE_MSG;
    params.cb = callback;
    params.arg = &server;
    return UcxStatus(ucp_worker_set_am_recv_handler(server.worker_->get(), &params), "ucp_worker_set_am_recv_handler");
  }

  static ucs_status_t OnHello(void* server, const void* header, size_t header_size, void* data, size_t size,
                              const ucp_am_recv_param_t* param) {
    HelloHeader hello;
    if (header_size != sizeof hello || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
    std::memcpy(&hello, header, sizeof hello);
    static_cast<Server*>(server)->OnHello(hello, std::string(static_cast<const char*>(data), size));
    return UCS_OK;
  }

  static ucs_status_t OnRequest(void* server, const void* header, size_t header_size, void*, size_t,
                                const ucp_am_recv_param_t*) {
    RequestHeader request;
    if (header_size != sizeof request) return UCS_OK;
    std::memcpy(&request, header, sizeof request);
    static_cast<Server*>(server)->OnRequest(request);
    return UCS_OK;
  }
};

StatusOr<std::unique_ptr<Server>> Server::Start(const NetworkContext& context, Reactor& reactor, TransportId id) {
  std::unique_ptr<Server> server(new Server(reactor, id));
  MR_ASSIGN_OR_RETURN(server->worker_, NetworkWorker::Create(context));
  MR_ASSIGN_OR_RETURN(server->worker_address_, server->worker_->Address());
  MR_RETURN_IF_ERROR(Handlers::Install(*server));
  MR_RETURN_IF_ERROR(reactor.Add(server.get()));
  return server;
}

Server::~Server() {
  reactor_.Remove(this);
  if (worker_ == nullptr) return;
  for (auto& [id, client] : clients_) Drop(std::move(client));
  clients_.clear();
  worker_->ProgressUntil(
      [this] {
        return std::all_of(dropped_.begin(), dropped_.end(), [](auto& c) { return c->sends.outstanding() == 0; });
      },
      kDrainLimit);
  worker_.reset();
}

void Server::Offer(uint64_t region, std::span<const std::byte> memory) {
  std::lock_guard lock(mutex_);
  regions_[region] = memory;
}

void Server::Withdraw(uint64_t region) {
  {
    std::lock_guard lock(mutex_);
    regions_.erase(region);
  }
  reactor_.Run([&] { Drain(region); });
}

bool Server::Work() {
  const bool more = worker_->Progress();
  DropFailed();
  return more;
}

int Server::fd() const { return worker_ == nullptr ? -1 : worker_->fd(); }
bool Server::Arm() { return worker_->Arm(); }

void Server::OnHello(const HelloHeader& header, const std::string& address) {
  const StatusOr<Address> peer = DecodeAddress(address);
  if (!peer.ok() || peer->worker_address.empty() || clients_.size() >= kMaxClients ||
      clients_.contains(header.client)) {
    return;
  }
  auto client = std::make_unique<Client>();
  client->endpoint.on_error = [this, raw = client.get()](const Status&) {
    raw->failed = true;
    any_failed_ = true;
  };
  if (!worker_->Open(peer->worker_address, client->endpoint).ok()) return;
  Code code = Code::kOk;
  if (header.version != kWireVersion) code = Code::kFailedPrecondition;
  if (header.owner != id_) code = Code::kNotFound;
  const WelcomeHeader welcome{kWireVersion, static_cast<uint32_t>(code), header.client};
  if (!client->sends.Send(client->endpoint.ep, kWelcome, AsMessage(welcome), {}, 0).ok()) client->failed = true;
  any_failed_ = any_failed_ || client->failed;
  clients_[header.client] = std::move(client);
}

StatusOr<std::span<const std::byte>> Server::Find(const RequestHeader& header) {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(header.region);
  if (it == regions_.end()) return NotFound("no such region");
  if (header.offset > it->second.size() || header.length > it->second.size() - header.offset) {
    return Status(Code::kOutOfRange, "outside the region");
  }
  return it->second.subspan(header.offset, header.length);
}

void Server::OnRequest(const RequestHeader& header) {
  const auto it = clients_.find(header.client);
  if (it == clients_.end() || it->second->failed) return;
  Client& client = *it->second;
  const StatusOr<std::span<const std::byte>> bytes = Find(header);
  const BytesHeader answer{header.request, static_cast<uint32_t>(bytes.status().code()), 0};
  const std::span<const std::byte> data = bytes.ok() ? *bytes : std::span<const std::byte>();
  if (client.sends.outstanding() >= kMaxSendsPerClient ||
      !client.sends.Send(client.endpoint.ep, kBytes, AsMessage(answer), data, header.region).ok()) {
    client.failed = true;
    any_failed_ = true;
  }
}

void Server::Drop(std::unique_ptr<Client> client) {
  worker_->Abort(client->endpoint);
  dropped_.push_back(std::move(client));
}

void Server::DropFailed() {
  if (std::exchange(any_failed_, false)) {
    for (auto it = clients_.begin(); it != clients_.end();) {
      if (it->second->failed) {
        Drop(std::move(it->second));
        it = clients_.erase(it);
      } else {
        ++it;
      }
    }
  }
  std::erase_if(dropped_, [](auto& client) { return client->sends.outstanding() == 0; });
}

void Server::Drain(uint64_t region) {
  if (worker_ == nullptr) return;
  const auto idle = [&] {
    DropFailed();
    return std::all_of(clients_.begin(), clients_.end(),
                       [&](auto& c) { return c.second->sends.outstanding(region) == 0; }) &&
           std::all_of(dropped_.begin(), dropped_.end(), [&](auto& c) { return c->sends.outstanding(region) == 0; });
  };
  if (idle()) return;
  reactor_.Wake(this);
  if (worker_->ProgressUntil(idle, kDrainLimit)) return;
  for (auto& [id, client] : clients_) {
    if (client->sends.outstanding(region) == 0) continue;
    client->failed = true;
    any_failed_ = true;
  }
  if (worker_->ProgressUntil(idle, kAbortLimit)) return;
  Log(LogLevel::kError, "transfer_ucx_server_stopped",
      {{"why", "sends of a withdrawn region did not end; this process answers no more reads over the network"}});
  reactor_.Remove(this);
  worker_.reset();
  clients_.clear();
  dropped_.clear();
}

}  // namespace millrace::transfer::ucx
