#include "common/runtime/gateway_runtime.h"

#include <algorithm>
#include <utility>

#include "common/runtime/gateway_call.h"
#include "common/runtime/gateway_metrics.h"
#include "common/runtime/gateway_prompt.h"

namespace millrace::runtime {

using gateway::CallId;

namespace {

constexpr uint32_t kNotReadyRetryMs = 1000;

uint64_t Number(CallId call) { return static_cast<uint64_t>(call); }

}  // namespace

GatewayRuntime::GatewayRuntime(GatewayOptions options, GatewayLinks links, Executor& control, MetricRegistry& metrics)
    : options_(std::move(options)),
      links_(links),
      control_(control),
      metrics_(std::make_unique<GatewayMetrics>(metrics)),
      prefill_watch_(control, *links.watch, *links.prefill_balancers, options_.liveness),
      decode_watch_(control, *links.watch, *links.decode_balancers, options_.liveness),
      rng_(options_.random_seed),
      alive_(std::make_shared<bool>(true)) {
  for (const GatewayModel& model : options_.models) {
    models_.push_back(std::make_shared<const ModelText>(model.name, model.digest, model.recipe));
  }
}

GatewayRuntime::~GatewayRuntime() {
  control_.Cancel(tick_);
  auto calls = calls_;
  for (auto& [id, call] : calls) call->Cancel();
}

void GatewayRuntime::Start() { Tick(); }

void GatewayRuntime::Tick() {
  prefill_watch_.Tick();
  decode_watch_.Tick();
  TimePoint now = control_.Now();
  for (auto& [id, call] : calls_) call->Tick(now);
  tick_ = control_.PostAt(NextBeat(control_.Now(), options_.liveness.heartbeat), [this] { Tick(); });
}

std::shared_ptr<const ModelText> GatewayRuntime::FindModel(const std::string& name) const {
  auto it = std::find_if(models_.begin(), models_.end(), [&](const auto& model) { return model->name == name; });
  return it == models_.end() ? nullptr : *it;
}

uint32_t GatewayRuntime::ReadyContext(const ModelText& model) const {
  uint32_t context = 0;
  std::vector<peer::PoolModel> decode = decode_watch_.ReadyModels();
  for (const peer::PoolModel& prefill : prefill_watch_.ReadyModels()) {
    if (prefill.model.name != model.name || prefill.model.model_digest != model.digest) continue;
    for (const peer::PoolModel& other : decode) {
      if (other.model.layout_digest != prefill.model.layout_digest) continue;
      uint32_t both = std::min(prefill.model.context_tokens, other.model.context_tokens);
      context = context == 0 ? both : std::min(context, both);
    }
  }
  return context;
}

Status GatewayRuntime::CheckModel(const std::string& name) const {
  const auto model = FindModel(name);
  if (!model) {
    return Status(Code::kNotFound, Reason::kModelNotFound,
                  "The model does not exist here. GET /v1/models lists those that do.")
        .WithParam("model");
  }
  if (ReadyContext(*model) > 0) return OkStatus();
  const std::vector<peer::PoolModel> ready = prefill_watch_.ReadyModels();
  const bool other_file = std::any_of(ready.begin(), ready.end(), [&](const peer::PoolModel& other) {
    return other.model.name == name && other.model.model_digest != model->digest;
  });
  return Status(Code::kUnavailable, Reason::kNoInstance,
                other_file ? "The ready workers have another file of the model than the gateway. Try again when both "
                             "have the same."
                           : "No worker is ready for the model. Try again shortly.")
      .WithRetryAfterMs(kNotReadyRetryMs);
}

std::vector<gateway::ServedModel> GatewayRuntime::Models() const {
  std::vector<gateway::ServedModel> models;
  for (const auto& model : models_) models.push_back({model->name, ReadyContext(*model)});
  return models;
}

bool GatewayRuntime::Ready() const {
  return std::any_of(models_.begin(), models_.end(), [this](const auto& model) { return ReadyContext(*model) > 0; });
}

CallId GatewayRuntime::Start(gateway::CompletionRequest request, gateway::CompletionSink& sink) {
  uint64_t id = next_call_++;
  Status status = CheckModel(request.model);
  auto model = FindModel(request.model);
  uint32_t context = model ? ReadyContext(*model) : 0;
  auto call = std::make_shared<GatewayCall>(*this, id, std::move(request), std::move(model), sink);
  calls_.emplace(id, call);
  ShowGauges();
  if (status.ok()) {
    call->Prepare(context);
  } else {
    call->FailLater(std::move(status));
  }
  return CallId{id};
}

void GatewayRuntime::Cancel(CallId call) {
  auto it = calls_.find(Number(call));
  if (it == calls_.end()) return;
  auto held = it->second;
  held->Cancel();
}

// The call may be in the middle of one of its own handlers, so it goes as a later task.
void GatewayRuntime::Ended(CallId call) {
  control_.Post([this, alive = std::weak_ptr<bool>(alive_), call] {
    if (alive.expired()) return;
    calls_.erase(Number(call));
    ShowGauges();
  });
}

std::string GatewayRuntime::ChooseReplica(const std::vector<std::string>& tried) {
  auto untried = [&](std::vector<std::string> replicas) {
    std::erase_if(replicas,
                  [&](const std::string& r) { return std::find(tried.begin(), tried.end(), r) != tried.end(); });
    return replicas;
  };
  std::vector<std::string> candidates = untried(prefill_watch_.LiveReplicas());
  if (candidates.empty()) candidates = untried(prefill_watch_.AllReplicas());
  return candidates.empty() ? "" : candidates[rng_.Below(candidates.size())];
}

void GatewayRuntime::AskSlot(CallId call) {
  slot_queue_.push_back(Number(call));
  GrantSlots();
}

void GatewayRuntime::FreeSlot(CallId call) {
  size_t freed = std::erase(slots_, Number(call)) + std::erase(slot_queue_, Number(call));
  if (freed > 0) GrantSlots();
}

void GatewayRuntime::GrantSlots() {
  while (slots_.size() < options_.most_reentries_at_once && !slot_queue_.empty()) {
    uint64_t id = slot_queue_.front();
    slot_queue_.pop_front();
    slots_.push_back(id);
    control_.Post([this, alive = std::weak_ptr<bool>(alive_), id] {
      if (alive.expired()) return;
      auto it = calls_.find(id);
      if (it != calls_.end()) it->second->SlotGranted();
    });
  }
  ShowGauges();
}

void GatewayRuntime::ShowGauges() {
  metrics_->active_requests.Set(static_cast<double>(calls_.size()));
  metrics_->open_streams.Set(static_cast<double>(open_streams_));
  metrics_->reentries_active.Set(static_cast<double>(slots_.size()));
  metrics_->reentries_waiting.Set(static_cast<double>(slot_queue_.size()));
}

}  // namespace millrace::runtime
