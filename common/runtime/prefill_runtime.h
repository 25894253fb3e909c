#pragma once
// The prefill worker: takes prompts, loads what the store has of them, computes the rest in chunks, samples the first
// token and hands the KV over to a decode worker.
//
// Threads: everything on `control` except backend.Step and sampling on `engine` and checksums on `checksum`. Destroy it
// after all executors stopped.

#include <cstdint>
#include <deque>
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
#include "common/runtime/prefill_handoff.h"
#include "common/runtime/store_client.h"
#include "common/runtime/worker_pages.h"
#include "common/runtime/worker_puts.h"
#include "common/scheduler/admission.h"
#include "common/scheduler/prefill_planner.h"

namespace millrace::runtime {

// All outlive the runtime.
struct PrefillWiring {
  Executor& control;
  Executor& engine;
  Executor& checksum;
  engine::Backend& backend;
  peer::Dialer<peer::PickProtocol>& pick_dialer;
  const peer::AddressSource& decode_balancers;
  peer::Dialer<peer::HandoffProtocol>& handoff_dialer;
  StoreClient* store = nullptr;  // null: no store
  MetricRegistry& metrics;
};

struct PrefillOptions {
  cluster::Incarnation incarnation = 0;
  peer::MemoryAddress memory;  // where peers read backend.kv_memory()
  peer::Liveness liveness;
  scheduler::PrefillLimits limits;
  scheduler::QueueLimits queue;                 // requests not computed yet
  uint32_t most_sequences = 64;                 // holding blocks at once
  Duration lookup_timeout = Milliseconds(300);  // then nothing is loaded
  Duration load_timeout = Seconds(3);           // then the rest is computed
  Duration put_timeout = Seconds(10);           // then the block is not in the store
  Duration reserve_timeout = Seconds(10);       // of one attempt at a decode slot
  Duration lease = Seconds(30);                 // most that pages wait for the decode worker to have read them
};

struct PrefillSession;
struct PrefillStep;

class PrefillRuntime final : public peer::Service<peer::PrefillProtocol> {
 public:
  PrefillRuntime(PrefillWiring wiring, PrefillOptions options);
  ~PrefillRuntime() override;

  // Once, on `control` or before it runs.
  void Start();
  // Refuses new requests from now on; those accepted go on to their end. Poll idle().
  void Drain();
  bool idle() const;  // nothing held, nothing waiting, no step running

  peer::StreamHandler<peer::PrefillProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::PrefillProtocol>> stream) override;

  cluster::Load load() const;  // `sequence` and `ready` are the reporter's
  void set_on_load_change(std::function<void()> on_change) { on_load_change_ = std::move(on_change); }

 private:
  friend class LastChunkObserver;

  PrefillSession* Find(uint64_t id);
  void OnRequest(uint64_t id, peer::PrefillProtocol::Up message);
  Status Admission(const peer::PrefillRequest& request) const;
  void AdmitWaiting();
  void Fetch(PrefillSession& session);
  void OnLookup(uint64_t id, uint32_t present);
  void OnLoaded(uint64_t id, uint32_t loaded);
  void Compute(PrefillSession& session);

  void MaybeStep();
  std::shared_ptr<PrefillStep> MakeStep();
  void RunStep(PrefillStep& step);  // on `engine`
  void FinishStep(PrefillStep& step);
  void ChunkDone(PrefillSession& session, uint32_t tokens);
  void OnFirstToken(PrefillSession& session, request::TokenId token);

  void PutFullBlocks(PrefillSession& session);
  void ChecksumBlocks(PrefillSession& session, uint32_t to_block);
  void OnChecksums(uint64_t id, std::vector<peer::LayerBlock> blocks);
  void StartHandoff(PrefillSession& session);
  void MaybeEndHandoff(PrefillSession& session);

  void End(PrefillSession& session, const Status& status, const char* outcome);
  void Reap(uint64_t id);
  void Changed();
  void Tick();
  Counter& Outcome(const char* outcome);
  Counter& HandoffFailure(Reason reason);

  const PrefillWiring wiring_;
  const PrefillOptions options_;
  const std::string layout_digest_;
  const KvPages pages_;
  const PrefillHandoffOptions handoff_options_;
  kv::BlockPool pool_;
  BlockWriter writer_;
  scheduler::PrefillPlanner planner_;
  std::map<uint64_t, std::unique_ptr<PrefillSession>> sessions_;  // in order of arrival
  std::deque<uint64_t> waiting_;                                  // for blocks
  uint64_t next_id_ = 1;
  size_t next_replica_ = 0;
  bool stepping_ = false;
  bool draining_ = false;
  TimerId tick_ = TimerId::kNone;
  std::function<void()> on_load_change_;
  request::SamplerScratch scratch_;  // of `engine`

  Gauge& sessions_gauge_;
  Gauge& waiting_gauge_;
  Gauge& blocks_gauge_;
  Gauge& handoffs_gauge_;
  Counter& computed_tokens_;
  Counter& cached_tokens_;
  Histogram& step_seconds_;
};

}  // namespace millrace::runtime
