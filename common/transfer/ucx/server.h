#pragma once
// The owner's side of the network lanes: knows the regions, checks each request against them and sends the bytes.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/transfer/ucx/network.h"
#include "common/transfer/ucx/reactor.h"
#include "common/transfer/ucx/wire.h"

namespace millrace::transfer::ucx {

class Server final : public Pollable {
 public:
  // Created and destroyed on the reactor's thread.
  static StatusOr<std::unique_ptr<Server>> Start(const NetworkContext& context, const std::string& devices,
                                                 Reactor& reactor, TransportId id);
  ~Server() override;

  const std::vector<std::string>& sockets() const { return sockets_; }
  // Thread-safe.
  void Offer(uint64_t region, std::span<const std::byte> memory);
  // Thread-safe. Afterwards no byte of the region is read any more. Lets sends under way finish for up to 100 ms, then
  // drops the connections of the readers that hold them up.
  void Withdraw(uint64_t region);

  bool Work() override;
  int fd() const override;
  bool Arm() override;

 private:
  struct Client {
    NetworkWorker::Endpoint endpoint;
    SendBook sends;  // tag = region
    bool welcome = false;
    bool failed = false;
  };
  struct Handlers;

  Server(Reactor& reactor, TransportId id) : reactor_(reactor), id_(id) {}
  void OnHello(Client& client, const HelloHeader& header);
  void OnRequest(Client& client, const RequestHeader& header);
  void AcceptWaiting();
  void MarkFailed(Client& client);
  StatusOr<std::span<const std::byte>> Find(const RequestHeader& header);
  void Drop(std::unique_ptr<Client> client);
  void DropFailed();
  void Drain(uint64_t region);

  Reactor& reactor_;
  const TransportId id_;
  std::vector<std::string> sockets_;
  std::mutex mutex_;
  std::map<uint64_t, std::span<const std::byte>> regions_;  // guarded by mutex_
  std::map<ucp_ep*, std::unique_ptr<Client>> clients_;
  std::vector<ucp_conn_request*> waiting_;
  std::list<std::unique_ptr<Client>> dropped_;  // until UCX gave their sends back
  bool any_failed_ = false;
  std::unique_ptr<NetworkWorker> worker_;  // null once it had to be given up
  std::unique_ptr<NetworkListener> listener_;
};

}  // namespace millrace::transfer::ucx
