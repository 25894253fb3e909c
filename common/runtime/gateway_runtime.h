#pragma once
// The gateway's runtime: takes requests for text, renders and tokenizes them, finds workers through the balancers,
// follows each request from worker to worker until it ended, and gives its text away as it comes. One control executor
// owns everything; rendering runs on the work executors.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/base/random.h"
#include "common/gateway/completion.h"
#include "common/gateway/request_machine.h"
#include "common/peer/addresses.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"
#include "common/recipe/model_recipe.h"
#include "common/runtime/pool_watch.h"

namespace millrace::runtime {

struct GatewayModel {
  std::string name;  // what clients and workers call it
  std::shared_ptr<const recipe::ModelRecipe> recipe;
  std::string digest;  // of the model file; only workers of the same file are used
};

struct GatewayOptions {
  std::vector<GatewayModel> models;
  gateway::RequestRules rules;
  peer::Liveness liveness;
  uint32_t most_reentries_at_once = 64;
  uint64_t random_seed = 1;  // spreads backoffs and picks of replicas; from entropy in production
};

// What the runtime reaches the cluster by. All outlive it.
struct GatewayLinks {
  Executor* work = nullptr;        // may be the control executor
  Executor* large_work = nullptr;  // of large requests; may be `work`
  peer::Dialer<peer::PickProtocol>* pick = nullptr;
  peer::Dialer<peer::PrefillProtocol>* prefill = nullptr;
  peer::Dialer<peer::DecodeProtocol>* decode = nullptr;
  peer::Dialer<peer::WatchProtocol>* watch = nullptr;
  const peer::AddressSource* prefill_balancers = nullptr;
  const peer::AddressSource* decode_balancers = nullptr;
};

class GatewayCall;
struct GatewayMetrics;
struct ModelText;

class GatewayRuntime final : public gateway::CompletionService {
 public:
  // Everything but the constructor on `control`, which outlives the runtime.
  GatewayRuntime(GatewayOptions options, GatewayLinks links, Executor& control, MetricRegistry& metrics);
  ~GatewayRuntime() override;  // cancels what is left

  void Start();  // begins to watch the balancers

  gateway::CallId Start(gateway::CompletionRequest request, gateway::CompletionSink& sink) override;
  void Cancel(gateway::CallId call) override;
  std::vector<gateway::ServedModel> Models() const override;
  Status CheckModel(const std::string& name) const override;

  // Some model has a ready worker of each role, of one layout.
  bool Ready() const;
  size_t active() const { return calls_.size(); }

 private:
  friend class GatewayCall;

  void Tick();
  std::shared_ptr<const ModelText> FindModel(const std::string& name) const;
  // The context of the model as ready workers have it; 0 when a role has none.
  uint32_t ReadyContext(const ModelText& model) const;
  void Ended(gateway::CallId call);
  // A prefill balancer replica that is not in `tried`; live ones first; "" when none is left.
  std::string ChooseReplica(const std::vector<std::string>& tried);
  void AskSlot(gateway::CallId call);
  void FreeSlot(gateway::CallId call);
  void GrantSlots();
  void ShowGauges();

  const GatewayOptions options_;
  const GatewayLinks links_;
  Executor& control_;
  const std::unique_ptr<GatewayMetrics> metrics_;
  std::vector<std::shared_ptr<const ModelText>> models_;
  PoolWatch prefill_watch_;
  PoolWatch decode_watch_;
  Rng rng_;
  uint64_t next_call_ = 1;
  std::map<uint64_t, std::shared_ptr<GatewayCall>> calls_;
  std::vector<uint64_t> slots_;      // calls that re-enter now
  std::deque<uint64_t> slot_queue_;  // calls that wait to
  size_t open_streams_ = 0;          // to workers and balancers, for requests
  TimerId tick_ = TimerId::kNone;
  std::shared_ptr<bool> alive_;  // tasks that were posted look whether the runtime still is
};

}  // namespace millrace::runtime
