#pragma once
// The sending side of one sequence's hand-over: asks a decode balancer for a worker, reserves a slot there, announces
// the layer blocks that the worker then reads, and says when the worker has them all. When an attempt fails it is made
// once more with another worker, from the start. Lives on `control`; destroying it cancels whatever is open.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/peer/addresses.h"
#include "common/peer/liveness.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"

namespace millrace::runtime {

// All outlive the hand-over.
struct PrefillHandoffWiring {
  Executor& control;
  peer::Dialer<peer::PickProtocol>& pick_dialer;
  const peer::AddressSource& decode_balancers;
  peer::Dialer<peer::HandoffProtocol>& handoff_dialer;
};

struct PrefillHandoffOptions {
  cluster::Incarnation incarnation = 0;  // of this worker
  std::string layout_digest;
  peer::MemoryAddress memory;  // where the blocks can be read
  peer::Liveness liveness;
  Duration reserve_timeout = Seconds(10);   // of one attempt, pick included
  Duration complete_timeout = Seconds(30);  // from HandoffEnd to HandoffComplete: the lease of the pages
  uint32_t attempts = 2;
};

class PrefillHandoff {
 public:
  // `complete` and `failed` are the last event, and may destroy the hand-over.
  struct Events {
    std::function<void(peer::DecodeTarget)> reserved;  // again after a retry: the newest counts
    std::function<void()> complete;
    std::function<void(Status)> failed;
    std::function<void(const Status&)> attempt_failed;  // before the next attempt or `failed`; destroys nothing
  };

  // `options` and `generation` outlive the hand-over.
  PrefillHandoff(PrefillHandoffWiring wiring, const PrefillHandoffOptions& options,
                 const request::Generation& generation, Events events);
  // `first_replica` spreads hand-overs over the balancers. May report failed before it returns.
  void Start(std::vector<cluster::Incarnation> excluded, size_t first_replica);

  void Announce(std::vector<peer::LayerBlock> blocks);
  // All is announced.
  void End(const peer::HandoffEnd& end);
  // Once each heartbeat interval; may report failed.
  void Tick(TimePoint now, const peer::Heartbeat& own);

 private:
  void BeginAttempt();
  void Pick();
  void OnPicked(peer::PickProtocol::Down message);
  void OnPickClosed(const Status& status);
  void Reserve(const peer::Route& route);
  void OnHandoff(peer::HandoffProtocol::Down message);
  void OnReserved();
  void SendBlocks(size_t from);
  void SendEnd();
  void AttemptFailed(const Status& status);
  void NobodyLeft(const Status& status);  // fails with the reason of the attempt before, if there was one
  void Fail(const Status& status);

  const PrefillHandoffWiring wiring_;
  const PrefillHandoffOptions& options_;
  const request::Generation& generation_;
  const Events events_;

  std::vector<cluster::Incarnation> excluded_;
  std::vector<std::string> replicas_;  // still to ask in this attempt
  size_t first_replica_ = 0;
  uint32_t attempt_ = 0;
  TimePoint deadline_ = kNever;  // of what is waited for now
  std::unique_ptr<peer::ClientStream<peer::PickProtocol>> pick_;
  std::unique_ptr<peer::ClientStream<peer::HandoffProtocol>> handoff_;
  std::optional<peer::LivenessMonitor> monitor_;  // of the open stream
  peer::Route route_;
  std::string session_;
  Status attempt_failure_;
  bool reserved_ = false;
  std::vector<peer::LayerBlock> announced_;  // all so far, for another attempt
  std::optional<peer::HandoffEnd> end_;
};

}  // namespace millrace::runtime
