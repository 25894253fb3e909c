#include "common/runtime/balancer_runtime.h"

#include <set>
#include <type_traits>

#include "common/base/log.h"

namespace millrace::runtime {
namespace {

constexpr uint32_t kRetryAfterMs = 1000;
// A peer that does not read its heartbeats gets no more of them until it does.
constexpr size_t kMaxPendingHeartbeats = 16;

std::string Describe(const cluster::ModelSelector& selector) {
  std::string text = selector.name.empty() ? "any model" : "model '" + selector.name + "'";
  if (!selector.layout_digest.empty()) text += " with layout " + selector.layout_digest.substr(0, 12);
  if (!selector.model_digest.empty()) text += " of file " + selector.model_digest.substr(0, 12);
  return text;
}

cluster::ModelSelector SelectorOf(const peer::PickRequest& request) {
  return {request.model, request.layout_digest, request.model_digest};
}

}  // namespace

struct BalancerRuntime::Metrics {
  Metrics(MetricRegistry& registry, const std::string& role)
      : live(registry.AddGauge("millrace_balancer_instances", "Instances of the pool",
                               {{"pool", role}, {"state", "live"}})),
        ready(registry.AddGauge("millrace_balancer_instances", "Instances of the pool",
                                {{"pool", role}, {"state", "ready"}})),
        waiting(registry.AddGauge("millrace_balancer_waiting_picks", "Picks that wait for room", {{"pool", role}})),
        routed(registry.AddCounter("millrace_balancer_picks_routed_total", "Picks answered with an instance",
                                   {{"pool", role}})),
        wait_seconds(registry.AddHistogram("millrace_balancer_pick_wait_seconds", "From a pick's arrival to its route",
                                           {0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60}, {{"pool", role}})) {
    for (const Reason reason :
         {Reason::kNone, Reason::kOverloaded, Reason::kNoInstance, Reason::kModelNotFound, Reason::kDraining}) {
      shed[reason] = &registry.AddCounter("millrace_balancer_picks_shed_total", "Picks refused",
                                          {{"pool", role}, {"reason", std::string(ReasonName(reason))}});
    }
    for (const auto cause : {cluster::DeathCause::kSilent, cluster::DeathCause::kNoProgress}) {
      deaths[cause] = &registry.AddCounter("millrace_balancer_deaths_total", "Instances declared dead",
                                           {{"pool", role}, {"cause", std::string(cluster::DeathCauseName(cause))}});
    }
  }

  Gauge& live;
  Gauge& ready;
  Gauge& waiting;
  Counter& routed;
  Histogram& wait_seconds;
  std::map<Reason, Counter*> shed;
  std::map<cluster::DeathCause, Counter*> deaths;
};

StatusOr<std::unique_ptr<BalancerRuntime>> BalancerRuntime::Make(const BalancerOptions& options, Executor& executor,
                                                                 MetricRegistry& metrics) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<policy::Policy> policy,
                      policy::MakePolicy(options.policy, options.policy_options));
  return std::unique_ptr<BalancerRuntime>(new BalancerRuntime(options, std::move(policy), executor, metrics));
}

BalancerRuntime::BalancerRuntime(const BalancerOptions& options, std::unique_ptr<policy::Policy> policy,
                                 Executor& executor, MetricRegistry& metrics)
    : options_(options),
      executor_(executor),
      metrics_(std::make_unique<Metrics>(metrics, std::string(cluster::RoleName(options.role)))),
      policy_(std::move(policy)),
      rng_(options.seed),
      pool_(options.role, {options.liveness.silence, options.liveness.progress, cluster::PoolOptions{}.settle}),
      started_(executor.Now()),
      last_tick_(started_) {}

BalancerRuntime::~BalancerRuntime() { executor_.Cancel(timer_); }

void BalancerRuntime::Start() {
  started_ = last_tick_ = executor_.Now();
  timer_ = executor_.PostAt(NextBeat(executor_.Now(), options_.liveness.heartbeat), [this] { Tick(); });
}

void BalancerRuntime::Drain() {
  draining_ = true;
  while (!picks_.empty()) {
    Shed(picks_.begin()->first, Status(Code::kUnavailable, Reason::kDraining, "this balancer is shutting down"));
  }
}

// ---- reports -------------------------------------------------------------------------------------------------------

peer::StreamHandler<peer::ReportProtocol::Up> BalancerRuntime::Accept(
    std::unique_ptr<peer::ServerStream<peer::ReportProtocol>> stream) {
  if (reporters_.size() >= options_.max_streams) {
    stream->Close(Status(Code::kResourceExhausted, Reason::kOverloaded, "too many instances report to this balancer"));
    return {};
  }
  const StreamId id = next_id_++;
  reporters_[id] = {std::move(stream), executor_.Now(), 0};
  return {[this, id](peer::ReportProtocol::Up message) {
            if (const auto* hello = std::get_if<peer::WorkerHello>(&message)) return OnHello(id, *hello);
            OnReport(id, std::get<peer::LoadReport>(message).load);
          },
          [this, id](Status) { CloseReporter(id, OkStatus()); }};
}

void BalancerRuntime::OnHello(StreamId id, const peer::WorkerHello& hello) {
  const auto reporter = reporters_.find(id);
  if (reporter == reporters_.end()) return;
  const cluster::InstanceInfo& info = hello.info;
  Status status = reporter->second.incarnation == 0 ? pool_.Hello(info, executor_.Now())
                                                    : InvalidArgument("a second hello on one report stream");
  if (!status.ok()) {
    Log(LogLevel::kWarning, "instance_refused", {{"instance", info.instance_id}, {"error", status.ToString()}});
    return CloseReporter(id, std::move(status));
  }
  reporter->second.incarnation = info.incarnation;
  reporter_of_[info.incarnation] = id;
  Log(LogLevel::kInfo, "instance_joined",
      {{"instance", info.instance_id}, {"incarnation", info.incarnation}, {"address", info.address}});
  CloseReplaced();
  PoolChanged();
}

// Ends the streams of incarnations that a hello has just replaced, and older streams of the same incarnation.
void BalancerRuntime::CloseReplaced() {
  std::vector<StreamId> replaced;
  for (const auto& [id, reporter] : reporters_) {
    if (reporter.incarnation == 0) continue;
    const auto owner = reporter_of_.find(reporter.incarnation);
    if (pool_.Find(reporter.incarnation) == nullptr || owner == reporter_of_.end() || owner->second != id) {
      replaced.push_back(id);
    }
  }
  for (const StreamId id : replaced) {
    CloseReporter(id, Status(Code::kAborted, "another process took this instance's place"));
  }
}

void BalancerRuntime::OnReport(StreamId id, const cluster::Load& load) {
  const auto reporter = reporters_.find(id);
  if (reporter == reporters_.end()) return;
  if (reporter->second.incarnation == 0) {
    return CloseReporter(id, InvalidArgument("a load report before the hello"));
  }
  pool_.Report(reporter->second.incarnation, load, executor_.Now());
  PoolChanged();
}

void BalancerRuntime::CloseReporter(StreamId id, Status status) {
  const auto found = reporters_.find(id);
  if (found == reporters_.end()) return;
  const Reporter reporter = std::move(found->second);
  reporters_.erase(found);
  if (!status.ok()) reporter.stream->Close(std::move(status));
  const auto owner = reporter_of_.find(reporter.incarnation);
  if (owner == reporter_of_.end() || owner->second != id) return;
  reporter_of_.erase(owner);
  if (const cluster::InstanceInfo* info = pool_.Find(reporter.incarnation)) {
    Log(LogLevel::kInfo, "instance_left", {{"instance", info->instance_id}, {"incarnation", info->incarnation}});
    pool_.Remove(reporter.incarnation, executor_.Now());
    PoolChanged();
  }
}

// ---- picks ---------------------------------------------------------------------------------------------------------

peer::StreamHandler<peer::PickProtocol::Up> BalancerRuntime::Accept(
    std::unique_ptr<peer::ServerStream<peer::PickProtocol>> stream) {
  const StreamId id = next_id_++;
  picks_[id] = {std::move(stream), executor_.Now(), std::nullopt};
  if (draining_) {
    Shed(id, Status(Code::kUnavailable, Reason::kDraining, "this balancer is shutting down"));
    return {};
  }
  if (picks_.size() > options_.max_waiting_picks) {
    Shed(id, Status(Code::kResourceExhausted, Reason::kOverloaded,
                    std::to_string(options_.max_waiting_picks) + " requests already wait for a " +
                        std::string(cluster::RoleName(options_.role)) + " instance"));
    return {};
  }
  metrics_->waiting.Set(static_cast<double>(picks_.size()));
  return {[this, id](peer::PickProtocol::Up message) {
            OnPickRequest(id, std::move(std::get<peer::PickRequest>(message)));
          },
          [this, id](Status status) {
            // A client may finish sending before it has its answer; anything else is a cancel.
            if (status.ok()) return;
            picks_.erase(id);
            metrics_->waiting.Set(static_cast<double>(picks_.size()));
          }};
}

void BalancerRuntime::OnPickRequest(StreamId id, peer::PickRequest request) {
  const auto pick = picks_.find(id);
  if (pick == picks_.end()) return;
  if (pick->second.request) return Shed(id, InvalidArgument("a second request on one pick stream"));
  pick->second.request = std::move(request);
  RetryPicks();
}

void BalancerRuntime::Shed(StreamId id, Status status) {
  const auto pick = picks_.find(id);
  if (pick == picks_.end()) return;
  const auto counter = metrics_->shed.find(status.reason());
  (counter == metrics_->shed.end() ? metrics_->shed.at(Reason::kNone) : counter->second)->Add();
  if (pick->second.request) {
    Log(LogLevel::kWarning, "pick_shed", {{"request", pick->second.request->request_id}, {"error", status.ToString()}});
  }
  if (!status.retry_after_ms() && status.reason() != Reason::kModelNotFound) status.WithRetryAfterMs(kRetryAfterMs);
  pick->second.stream->Close(std::move(status));
  picks_.erase(pick);
  metrics_->waiting.Set(static_cast<double>(picks_.size()));
}

Status BalancerRuntime::NobodyReady(const cluster::ModelSelector& selector) const {
  if (pool_.Has(selector)) return OkStatus();
  const TimePoint* lost = pool_.LostAt(selector);
  const TimePoint since = lost == nullptr ? started_ : *lost;
  if (executor_.Now() - since < options_.grace) return OkStatus();
  if (lost == nullptr && pool_.size() > 0) {
    return Status(Code::kNotFound, Reason::kModelNotFound,
                  "no " + std::string(cluster::RoleName(options_.role)) + " instance serves " + Describe(selector));
  }
  return Status(Code::kUnavailable, Reason::kNoInstance,
                "no " + std::string(cluster::RoleName(options_.role)) + " instance is left for " + Describe(selector));
}

BalancerRuntime::Progress BalancerRuntime::TryPick(StreamId id, Pick& pick) {
  const peer::PickRequest& request = *pick.request;
  const cluster::ModelSelector selector = SelectorOf(request);
  const cluster::ClusterView view = pool_.Candidates(selector, request.excluded);
  if (view.instances.empty()) {
    Status status = NobodyReady(selector);
    if (status.ok()) return Progress::kWaiting;
    Shed(id, std::move(status));
    return Progress::kDone;
  }
  policy::Decision decision =
      policy_->Pick(view, {request.prompt_tokens, request.max_new_tokens}, executor_.Now(), rng_);
  if (std::holds_alternative<policy::Wait>(decision)) return Progress::kWaiting;
  if (auto* shed = std::get_if<policy::Shed>(&decision)) {
    Shed(id, std::move(shed->status));
  } else {
    Route(id, pick, std::get<policy::Route>(decision).target);
  }
  return Progress::kDone;
}

void BalancerRuntime::Route(StreamId id, const Pick& pick, cluster::Incarnation target) {
  const cluster::InstanceInfo* info = pool_.Find(target);
  if (info == nullptr) return Shed(id, Internal("the policy picked an instance that is not in the pool"));
  pick.stream->Send(peer::Route{info->instance_id, info->incarnation, info->address});
  pick.stream->Close(OkStatus());
  pool_.AddPick(target, pick.request->prompt_tokens, executor_.Now());
  metrics_->routed.Add();
  metrics_->wait_seconds.Observe(ToSeconds(executor_.Now() - pick.opened));
  picks_.erase(id);
  metrics_->waiting.Set(static_cast<double>(picks_.size()));
}

// In order of arrival; a pick that must wait holds back the later ones that want the same, so none starves.
void BalancerRuntime::RetryPicks() {
  std::set<std::pair<cluster::ModelSelector, std::vector<cluster::Incarnation>>> held;
  for (auto it = picks_.begin(); it != picks_.end();) {
    const auto current = it++;
    if (!current->second.request) continue;
    const auto key = std::pair(SelectorOf(*current->second.request), current->second.request->excluded);
    if (held.contains(key)) continue;
    if (TryPick(current->first, current->second) == Progress::kWaiting) held.insert(key);
  }
}

// ---- watches -------------------------------------------------------------------------------------------------------

peer::StreamHandler<peer::WatchProtocol::Up> BalancerRuntime::Accept(
    std::unique_ptr<peer::ServerStream<peer::WatchProtocol>> stream) {
  if (watchers_.size() >= options_.max_streams) {
    stream->Close(Status(Code::kResourceExhausted, Reason::kOverloaded, "too many watch this balancer"));
    return {};
  }
  const StreamId id = next_id_++;
  watchers_[id] = {std::move(stream), false};
  return {[this, id](peer::WatchProtocol::Up) {
            const auto watcher = watchers_.find(id);
            if (watcher == watchers_.end()) return;
            watcher->second.asked = true;
            watcher->second.stream->Send(state_);
          },
          [this, id](Status) { watchers_.erase(id); }};
}

void BalancerRuntime::PoolChanged() {
  peer::PoolState state;
  uint32_t ready = 0;
  for (const cluster::ModelCount& count : pool_.Models()) {
    state.models.push_back({count.model, count.ready});
    ready += count.ready;
  }
  state.live = pool_.Live();
  if (state != state_) {
    state_ = std::move(state);
    metrics_->live.Set(static_cast<double>(state_.live.size()));
    metrics_->ready.Set(ready);
    for (auto& [id, watcher] : watchers_) {
      if (watcher.asked) watcher.stream->Send(state_);
    }
  }
  RetryPicks();
}

// ---- time ----------------------------------------------------------------------------------------------------------

void BalancerRuntime::Tick() {
  timer_ = executor_.PostAt(NextBeat(executor_.Now(), options_.liveness.heartbeat), [this] { Tick(); });
  const TimePoint now = executor_.Now();
  // This process was itself stopped or starved: what the instances said meanwhile may still be on its way.
  const Duration late = now - last_tick_ - options_.liveness.heartbeat;
  if (late > options_.liveness.heartbeat) {
    pool_.ForgiveStall(late);
    Log(LogLevel::kWarning, "balancer_stalled", {{"late_ms", ToMilliseconds(late)}});
  }
  last_tick_ = now;
  ++ticks_;
  ExpireInstances();
  ExpireStreams();
  RetryPicks();
  SendHeartbeats();
}

void BalancerRuntime::ExpireInstances() {
  const std::vector<cluster::Death> deaths = pool_.Expire(executor_.Now());
  for (const cluster::Death& death : deaths) {
    Log(LogLevel::kWarning, "instance_dead",
        {{"instance", death.info.instance_id},
         {"incarnation", death.info.incarnation},
         {"cause", cluster::DeathCauseName(death.cause)}});
    metrics_->deaths.at(death.cause)->Add();
    const auto owner = reporter_of_.find(death.info.incarnation);
    if (owner == reporter_of_.end()) continue;
    CloseReporter(owner->second,
                  Status(Code::kUnavailable, Reason::kPeerLost,
                         "declared dead: " + std::string(cluster::DeathCauseName(death.cause)) + "; say hello again"));
  }
  if (!deaths.empty()) PoolChanged();
}

void BalancerRuntime::ExpireStreams() {
  const TimePoint now = executor_.Now();
  std::vector<StreamId> mute;
  for (const auto& [id, reporter] : reporters_) {
    if (reporter.incarnation == 0 && now - reporter.opened >= options_.liveness.silence) mute.push_back(id);
  }
  for (const StreamId id : mute) {
    CloseReporter(id, Status(Code::kDeadlineExceeded, Reason::kDeadline, "no hello on this report stream"));
  }
  std::vector<StreamId> waited;
  for (const auto& [id, pick] : picks_) {
    if (now - pick.opened >= options_.max_wait) waited.push_back(id);
  }
  for (const StreamId id : waited) {
    Shed(id, WaitedTooLong(picks_.at(id)));
  }
}

Status BalancerRuntime::WaitedTooLong(const Pick& pick) const {
  if (!pick.request) return Status(Code::kDeadlineExceeded, Reason::kDeadline, "no request on this pick stream");
  const std::string role(cluster::RoleName(options_.role));
  const std::string waited = " for " + std::to_string(static_cast<int>(ToSeconds(options_.max_wait))) + " s";
  const cluster::ModelSelector selector = SelectorOf(*pick.request);
  if (pool_.Candidates(selector, {}).instances.empty()) {
    return Status(Code::kUnavailable, Reason::kNoInstance,
                  "no " + role + " instance of " + Describe(selector) + " was ready" + waited);
  }
  return Status(Code::kResourceExhausted, Reason::kOverloaded, "every " + role + " instance stayed full" + waited);
}

void BalancerRuntime::SendHeartbeats() {
  const peer::Heartbeat heartbeat{ticks_, false};
  const auto beat = [&heartbeat](auto& stream) {
    if (stream->pending_sends() < kMaxPendingHeartbeats) stream->Send(heartbeat);
  };
  for (auto& [id, reporter] : reporters_) beat(reporter.stream);
  for (auto& [id, pick] : picks_) beat(pick.stream);
  for (auto& [id, watcher] : watchers_) beat(watcher.stream);
}

}  // namespace millrace::runtime
