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

  // The client that a message came from, or null.
  static Client* From(Server& server, const ucp_am_recv_param_t* param) {
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return nullptr;
    const auto it = server.clients_.find(param->reply_ep);
    return it == server.clients_.end() || it->second->failed ? nullptr : it->second.get();
  }

  static ucs_status_t OnHello(void* argument, const void* header, size_t header_size, void*, size_t,
                              const ucp_am_recv_param_t* param) {
    auto& server = *static_cast<Server*>(argument);
    HelloHeader hello;
    Client* const client = From(server, param);
    if (client == nullptr || header_size != sizeof hello) return UCS_OK;
    std::memcpy(&hello, header, sizeof hello);
    server.OnHello(*client, hello);
    return UCS_OK;
  }

  static ucs_status_t OnRequest(void* argument, const void* header, size_t header_size, void*, size_t,
                                const ucp_am_recv_param_t* param) {
    auto& server = *static_cast<Server*>(argument);
    RequestHeader request;
    Client* const client = From(server, param);
    if (client == nullptr || header_size != sizeof request) return UCS_OK;
    std::memcpy(&request, header, sizeof request);
    server.OnRequest(*client, request);
    return UCS_OK;
  }
};

StatusOr<std::unique_ptr<Server>> Server::Start(const NetworkContext& context, const std::string& devices,
                                                Reactor& reactor, TransportId id) {
  std::unique_ptr<Server> server(new Server(reactor, id));
  MR_ASSIGN_OR_RETURN(server->worker_, NetworkWorker::Create(context));
  MR_RETURN_IF_ERROR(Handlers::Install(*server));
  MR_ASSIGN_OR_RETURN(server->listener_, NetworkListener::Create(*server->worker_, devices,
                                                                 [raw = server.get()](ucp_conn_request* request) {
                                                                   raw->waiting_.push_back(request);
                                                                 }));
  server->sockets_ = server->listener_->sockets();
  MR_RETURN_IF_ERROR(reactor.Add(server.get()));
  return server;
}

Server::~Server() {
  reactor_.Remove(this);
  if (worker_ == nullptr) return;
  for (ucp_conn_request* request : waiting_) listener_->Reject(request);
  for (auto& [ep, client] : clients_) Drop(std::move(client));
  clients_.clear();
  worker_->ProgressUntil(
      [this] {
        return std::all_of(dropped_.begin(), dropped_.end(), [](auto& c) { return c->sends.outstanding() == 0; });
      },
      kDrainLimit);
  listener_.reset();
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
  AcceptWaiting();
  DropFailed();
  return more;
}

int Server::fd() const { return worker_ == nullptr ? -1 : worker_->fd(); }
bool Server::Arm() { return worker_->Arm(); }

void Server::AcceptWaiting() {
  for (ucp_conn_request* request : std::exchange(waiting_, {})) {
    if (clients_.size() >= kMaxClients) {
      listener_->Reject(request);
      continue;
    }
    auto client = std::make_unique<Client>();
    client->endpoint.on_error = [this, raw = client.get()](const Status&) { MarkFailed(*raw); };
    if (!worker_->Accept(request, client->endpoint).ok()) continue;
    ucp_ep* const ep = client->endpoint.ep;
    clients_[ep] = std::move(client);
  }
}

void Server::MarkFailed(Client& client) {
  client.failed = true;
  any_failed_ = true;
}

void Server::OnHello(Client& client, const HelloHeader& header) {
  Code code = Code::kOk;
  if (header.version != kWireVersion) code = Code::kFailedPrecondition;
  if (header.owner != id_) code = Code::kNotFound;
  client.welcome = code == Code::kOk;
  const WelcomeHeader welcome{kWireVersion, static_cast<uint32_t>(code)};
  if (!client.sends.Send(client.endpoint.ep, kWelcome, AsMessage(welcome), {}, 0).ok()) MarkFailed(client);
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

void Server::OnRequest(Client& client, const RequestHeader& header) {
  if (!client.welcome) return MarkFailed(client);
  const StatusOr<std::span<const std::byte>> bytes = Find(header);
  const BytesHeader answer{header.request, static_cast<uint32_t>(bytes.status().code()), 0};
  const std::span<const std::byte> data = bytes.ok() ? *bytes : std::span<const std::byte>();
  if (client.sends.outstanding() >= kMaxSendsPerClient ||
      !client.sends.Send(client.endpoint.ep, kBytes, AsMessage(answer), data, header.region).ok()) {
    MarkFailed(client);
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
  for (auto& [ep, client] : clients_) {
    if (client->sends.outstanding(region) > 0) MarkFailed(*client);
  }
  if (worker_->ProgressUntil(idle, kAbortLimit)) return;
  Log(LogLevel::kError, "transfer_ucx_server_stopped",
      {{"why", "sends of a withdrawn region did not end; this process answers no more reads over the network"}});
  reactor_.Remove(this);
  listener_.reset();
  worker_.reset();
  clients_.clear();
  dropped_.clear();
}

}  // namespace millrace::transfer::ucx
