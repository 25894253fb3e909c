#pragma once
// The reader's side of the network lanes of one link: asks the owner for fragments and puts the answers in place. Has a
// worker of its own, so that dropping it ends every write for certain. Only on the reactor's thread.

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/transfer/transport.h"
#include "common/transfer/ucx/network.h"
#include "common/transfer/ucx/reactor.h"
#include "common/transfer/ucx/wire.h"

namespace millrace::transfer::ucx {

class NetworkLane final : public Pollable {
 public:
  // `sockets` are tried in turn until one welcomes us as a reader of `peer`; not empty.
  NetworkLane(const NetworkContext& context, Reactor& reactor, TransportId peer, std::vector<std::string> sockets);
  // Gets still pending complete with kCancelled, after it is certain that nothing of them is written any more.
  ~NetworkLane() override;

  // Starts the connection; what fails, fails the gets.
  void Open();
  // `done` is called on the reactor's thread, not from inside Get. After a failure every get fails with it.
  void Get(uint64_t region, uint64_t offset, std::span<std::byte> into, Completion done);
  const std::vector<std::string>& lanes() const { return lanes_; }

  bool Work() override;
  int fd() const override { return worker_ == nullptr ? -1 : worker_->fd(); }
  bool Arm() override { return worker_ == nullptr || worker_->Arm(); }

 private:
  struct ActiveGet {
    uint64_t region = 0;
    uint64_t offset = 0;
    std::span<std::byte> into;
    Completion done;
    size_t asked = 0;          // bytes asked for
    uint32_t outstanding = 0;  // fragments asked for and not yet answered
    Status status;
  };
  struct Fragment {
    NetworkLane* lane = nullptr;
    uint64_t request = 0;
    std::list<ActiveGet>::iterator get;
    std::span<std::byte> into;
    bool receiving = false;
  };
  struct Handlers;

  void TrySocket();
  Status Connect();
  void CloseWorker();
  void Pump();
  void Ask(std::list<ActiveGet>::iterator get);
  void OnWelcome(const WelcomeHeader& header);
  Fragment* Expect(const BytesHeader& header, size_t size);
  void FinishFragment(uint64_t request, const Status& status);
  void Fail(Status status);
  void CompleteFinished();

  const NetworkContext& context_;
  Reactor& reactor_;
  const TransportId peer_;
  const std::vector<std::string> sockets_;
  size_t socket_ = 0;  // the one in use
  std::vector<std::string> lanes_;
  bool welcome_ = false;
  Status failed_;
  std::list<ActiveGet> gets_;      // in order; the first ones may be wholly asked for
  std::list<ActiveGet> finished_;  // to be completed
  std::unordered_map<uint64_t, Fragment> fragments_;
  uint64_t next_request_ = 1;
  size_t bytes_in_flight_ = 0;
  NetworkWorker::Endpoint endpoint_;
  SendBook sends_;  // outlives worker_
  std::unique_ptr<NetworkWorker> worker_;
};

}  // namespace millrace::transfer::ucx
