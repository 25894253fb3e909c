#pragma once
// The decode worker: reserves room for sequences, reads their KV from prefill workers, runs them together one token a
// step and streams the tokens to gateways.
//
// Threads: everything on `control` except backend.Step and sampling on `engine`, checksums on `checksum` and the end of
// links on `blocking`. Destroy it after all executors stopped.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/cluster/instance.h"
#include "common/engine/backend.h"
#include "common/kv/block_pool.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"
#include "common/request/sampler.h"
#include "common/runtime/decode_links.h"
#include "common/runtime/store_client.h"
#include "common/runtime/worker_pages.h"
#include "common/runtime/worker_puts.h"
#include "common/scheduler/decode_planner.h"
#include "common/transfer/transport.h"

namespace millrace::runtime {

// All outlive the runtime.
struct DecodeWiring {
  Executor& control;
  Executor& engine;
  Executor& checksum;
  Executor& blocking;
  engine::Backend& backend;
  transfer::Transport& transport;
  StoreClient* store = nullptr;  // null: no store
  MetricRegistry& metrics;
};

struct DecodeOptions {
  cluster::Incarnation incarnation = 0;
  peer::Liveness liveness;
  scheduler::DecodeLimits limits;
  uint32_t most_streams = 1024;            // open at once, hand-overs and gateways each
  uint32_t pulls_per_link = 32;            // in flight
  Duration attach_timeout = Seconds(10);   // for a gateway to come for a session that runs or has ended
  Duration handoff_timeout = Seconds(30);  // without progress
  Duration drain_timeout = Seconds(1);     // for pulls of an ended session, then their link is ended
  Duration link_idle_time = Seconds(60);   // then a link is closed
  Duration put_timeout = Seconds(10);      // then the block is not in the store
};

struct DecodeSession;
struct DecodeStep;

class DecodeRuntime final : public peer::Service<peer::HandoffProtocol>, public peer::Service<peer::DecodeProtocol> {
 public:
  DecodeRuntime(DecodeWiring wiring, DecodeOptions options);
  ~DecodeRuntime() override;

  // Once, on `control` or before it runs.
  void Start();
  // Refuses reservations from now on; what runs goes on to its end. Poll idle().
  void Drain();
  bool idle() const;  // nothing held, no link, no step running

  peer::StreamHandler<peer::HandoffProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::HandoffProtocol>> stream) override;
  peer::StreamHandler<peer::DecodeProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::DecodeProtocol>> stream) override;

  cluster::Load load() const;  // `sequence` and `ready` are the reporter's
  void set_on_load_change(std::function<void()> on_change) { on_load_change_ = std::move(on_change); }

 private:
  struct Attaching {
    std::unique_ptr<peer::ServerStream<peer::DecodeProtocol>> stream;
    TimePoint opened;
  };

  DecodeSession* Find(uint64_t id);
  std::vector<scheduler::DecodeSequence> Held() const;

  void OnHandoff(uint64_t id, peer::HandoffProtocol::Up message);
  void OnHandoffClosed(uint64_t id, const Status& status);
  Status OnReserve(DecodeSession& session, peer::Reserve reserve);
  Status Admission(const peer::Reserve& reserve);
  Status OnLayerBlocks(DecodeSession& session, const peer::LayerBlocks& message);
  Status CheckLayerBlock(const DecodeSession& session, const peer::LayerBlock& block) const;
  void OnPulled(uint64_t id, const Status& status);
  Status OnHandoffEnd(DecodeSession& session, const peer::HandoffEnd& end);
  void MaybeActivate(DecodeSession& session);

  void OnAttach(uint64_t stream_id, peer::DecodeProtocol::Up message);
  void OnGatewayClosed(uint64_t stream_id);
  void Deliver(DecodeSession& session);
  void DeliverEnd(DecodeSession& session);

  void MaybeStep();
  std::shared_ptr<DecodeStep> MakeStep();
  void RunStep(DecodeStep& step);  // on `engine`
  void FinishStep(DecodeStep& step);
  void TokenDone(DecodeSession& session, request::TokenId token);
  void PutFullBlocks(DecodeSession& session);

  void Finish(DecodeSession& session, request::FinishReason finish);
  void End(DecodeSession& session, const Status& status, const char* cause);
  void Reap(uint64_t id);
  void Changed();
  void Tick();
  void TickSession(DecodeSession& session, TimePoint now, const peer::Heartbeat& heartbeat);
  Counter& Ended(const char* cause);

  const DecodeWiring wiring_;
  const DecodeOptions options_;
  const std::string layout_digest_;
  const KvPages pages_;
  kv::BlockPool pool_;
  BlockWriter writer_;
  PeerLinks links_;
  scheduler::DecodePlanner planner_;
  std::map<uint64_t, std::unique_ptr<DecodeSession>> sessions_;  // oldest first
  std::map<std::string, uint64_t> names_;
  std::map<uint64_t, Attaching> attaching_;  // gateways' streams before their Attach
  std::map<uint64_t, uint64_t> attached_;    // gateway's stream to session
  uint64_t next_id_ = 1;
  bool stepping_ = false;
  bool draining_ = false;
  double tokens_per_second_ = 0;
  TimerId tick_ = TimerId::kNone;
  std::function<void()> on_load_change_;
  request::SamplerScratch scratch_;  // of `engine`

  Gauge& sessions_gauge_;
  Gauge& reservations_gauge_;
  Gauge& blocks_gauge_;
  Gauge& links_gauge_;
  Counter& tokens_;
  Counter& pulled_bytes_;
  Histogram& step_seconds_;
};

}  // namespace millrace::runtime
