#include "common/runtime/gateway_call.h"

#include <utility>

#include "common/base/log.h"
#include "common/gateway/error_table.h"
#include "common/runtime/gateway_metrics.h"

namespace millrace::runtime {

using gateway::CompletionSink;
namespace event = gateway::event;
namespace action = gateway::action;

namespace {

Status Lost(const char* peer) {
  return {Code::kUnavailable, Reason::kPeerLost, std::string("the ") + peer + " closed the stream before it answered"};
}

}  // namespace

GatewayCall::GatewayCall(GatewayRuntime& runtime, uint64_t id, gateway::CompletionRequest request,
                         std::shared_ptr<const ModelText> model, CompletionSink& sink)
    : runtime_(runtime),
      id_(id),
      request_(std::make_shared<const gateway::CompletionRequest>(std::move(request))),
      model_(std::move(model)),
      sink_(&sink),
      started_(runtime.control_.Now()) {}

void GatewayCall::Prepare(uint32_t context_tokens) {
  seed_ = request_->seed ? *request_->seed : RandomSeed();
  std::weak_ptr<GatewayCall> weak = weak_from_this();
  Executor* control = &runtime_.control_;
  Executor* work = request_->large ? runtime_.links_.large_work : runtime_.links_.work;
  work->Post([weak, control, request = request_, model = model_, context_tokens, seed = seed_] {
    if (weak.expired()) return;
    auto prepared = std::make_shared<StatusOr<PreparedPrompt>>(PreparePrompt(*model, *request, context_tokens, seed));
    control->Post([weak, prepared] {
      if (auto call = weak.lock()) call->OnPrepared(std::move(*prepared));
    });
  });
}

void GatewayCall::FailLater(Status status) {
  runtime_.control_.Post([weak = weak_from_this(), status = std::move(status)] {
    auto call = weak.lock();
    if (call && !call->ended()) call->End("error", status)->OnFailed(status);
  });
}

void GatewayCall::OnPrepared(StatusOr<PreparedPrompt> prepared) {
  if (ended()) return;
  if (!prepared.ok()) {
    Status status = prepared.status();
    return End("error", status)->OnFailed(status);
  }
  prompt_text_ = std::move(prepared->text);
  request::Generation& generation = prepared->generation;
  bool nothing_to_do = generation.max_new_tokens == 0;
  machine_.emplace(runtime_.options_.rules, std::move(generation), runtime_.rng_.Next64(), runtime_.control_.Now());
  text_.emplace(model_->tokenizer, request_->stop, request_->include_stop);
  if (!nothing_to_do) return Step(event::Begin{});
  Do(action::Accept{});
  if (!ended()) Do(action::Finish{request::FinishReason::kLength});
}

void GatewayCall::Step(const gateway::Event& event) {
  if (ended()) return;
  for (const gateway::Action& action : machine_->Step(event, runtime_.control_.Now())) {
    Run(action);
    if (ended()) return;
  }
  FlushDelta();
  if (ended()) return;
  if (text_->stopped()) return Step(event::StopString{emitted_});
  ArmTimer();
}

void GatewayCall::Run(const gateway::Action& action) {
  std::visit([this](const auto& a) { Do(a); }, action);
}

void GatewayCall::ArmTimer() {
  TimePoint due = machine_->deadline();
  if (due >= timer_at_) return;  // the timer that is set looks again
  runtime_.control_.Cancel(timer_);
  timer_at_ = due;
  timer_ = runtime_.control_.PostAt(due, [this] {
    timer_at_ = kNever;
    Step(event::Timer{});
  });
}

// ---- what the machine asks for

void GatewayCall::Do(const action::AskSlot&) { runtime_.AskSlot(gateway::CallId{id_}); }
void GatewayCall::Do(const action::FreeSlot&) { runtime_.FreeSlot(gateway::CallId{id_}); }

void GatewayCall::Do(const action::OpenPick& open) {
  tried_replicas_.clear();
  excluded_ = open.excluded;
  TryNextReplica({Code::kUnavailable, Reason::kPeerLost, "no prefill balancer answers"});
}

void GatewayCall::TryNextReplica(Status last) {
  std::string replica = runtime_.ChooseReplica(tried_replicas_);
  if (replica.empty()) {
    runtime_.control_.Post([weak = weak_from_this(), last = std::move(last)] {
      if (auto call = weak.lock()) call->Step(event::PickFailed{last});
    });
    return;
  }
  tried_replicas_.push_back(replica);
  const request::Generation& generation = machine_->generation();
  peer::PickRequest pick;
  pick.request_id = generation.request_id;
  pick.model = model_->name;
  pick.model_digest = model_->digest;
  pick.prompt_tokens = static_cast<uint32_t>(generation.tokens.size());
  pick.max_new_tokens = generation.max_new_tokens - machine_->generated();
  pick.excluded = excluded_;
  Open(pick_, *runtime_.links_.pick, replica, std::move(pick), &GatewayCall::OnPick, &GatewayCall::PickClosed);
}

void GatewayCall::Do(const action::OpenPrefill& open) {
  peer::PrefillRequest request{open.incarnation, machine_->generation(), open.excluded_decode};
  Open(prefill_, *runtime_.links_.prefill, open.address, std::move(request), &GatewayCall::OnPrefill,
       &GatewayCall::PrefillClosed);
}

void GatewayCall::Do(const action::OpenDecode& open) {
  peer::Attach attach{open.incarnation, open.session, open.from};
  Open(decode_, *runtime_.links_.decode, open.address, std::move(attach), &GatewayCall::OnDecode,
       &GatewayCall::DecodeClosed);
}

void GatewayCall::Do(const action::Accept&) {
  const request::Generation& generation = machine_->generation();
  auto prompt_end = generation.tokens.begin() + generation.prompt_tokens;
  sink_->OnAccepted({{generation.tokens.begin(), prompt_end}, std::move(prompt_text_), seed_});
}

void GatewayCall::Do(const action::Emit& emit) {
  if (text_->stopped()) return;
  last_token_at_ = runtime_.control_.Now();
  if (emitted_ == 0) {
    first_token_at_ = last_token_at_;
    runtime_.metrics_->first_token_seconds.Observe(ToSeconds(first_token_at_ - started_));
  }
  ++emitted_;
  delta_.ids.push_back(emit.token);
  delta_.text += text_->Push(emit.token, emit.ends_text);
}

void GatewayCall::Do(const action::Reenter& reenter) {
  (reenter.free ? runtime_.metrics_->reentries_free : runtime_.metrics_->reentries_failed).Add();
  Log(LogLevel::kWarning, "request_reentry",
      {{"request_id", request_->request_id},
       {"generated", emitted_},
       {"free", reenter.free ? "true" : "false"},
       {"cause", reenter.cause.ToString()}});
}

void GatewayCall::Do(const action::Finish& finish) {
  bool stopped = text_->stopped();
  delta_.text += text_->Flush();
  // A stop string may complete only with the bytes that a cut character leaves.
  request::FinishReason reason = stopped || text_->stopped() ? request::FinishReason::kStop : finish.reason;
  FlushDelta();
  if (ended()) return;
  gateway::Finished finished{reason, CurrentUsage()};
  End(reason == request::FinishReason::kLength ? "length" : "stop", OkStatus())->OnFinished(finished);
}

void GatewayCall::Do(const action::Fail& fail) {
  FlushDelta();
  if (ended()) return;
  End("error", fail.status)->OnFailed(gateway::ForClient(fail.status));
}

void GatewayCall::FlushDelta() {
  if (delta_.ids.empty() && delta_.text.empty()) return;
  sink_->OnDelta(std::exchange(delta_, {}));
}

// ---- streams

template <class Protocol>
void GatewayCall::Open(Link<Protocol>& link, peer::Dialer<Protocol>& dialer, const std::string& address,
                       typename Protocol::Up first, void (GatewayCall::*on_message)(typename Protocol::Down),
                       void (GatewayCall::*on_closed)(Status)) {
  Close(link);
  link.monitor.emplace(runtime_.options_.liveness, runtime_.control_.Now());
  peer::StreamHandler<typename Protocol::Down> handler;
  handler.on_message = [this, &link, on_message](typename Protocol::Down message) {
    if (auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return link.monitor->Heard(*heartbeat);
    link.monitor->Heard();
    (this->*on_message)(std::move(message));
  };
  handler.on_closed = [this, &link, on_closed](Status status) {
    Close(link);
    (this->*on_closed)(std::move(status));
  };
  link.stream = dialer.Open(address, std::move(handler));
  link.stream->Send(std::move(first));
  ++runtime_.open_streams_;
  runtime_.ShowGauges();
}

template <class Protocol>
void GatewayCall::Close(Link<Protocol>& link) {
  if (!link.stream) return;
  auto stream = std::move(link.stream);  // its handler may be what runs now
  --runtime_.open_streams_;
  runtime_.ShowGauges();
}

template <class Protocol>
void GatewayCall::Listen(Link<Protocol>& link, TimePoint now, void (GatewayCall::*on_closed)(Status)) {
  if (!link.stream) return;
  Status status = link.monitor->Tick(now);
  if (status.ok()) return;
  Close(link);
  (this->*on_closed)(std::move(status));
}

void GatewayCall::Tick(TimePoint now) {
  Listen(pick_, now, &GatewayCall::PickClosed);
  Listen(prefill_, now, &GatewayCall::PrefillClosed);
  Listen(decode_, now, &GatewayCall::DecodeClosed);
}

void GatewayCall::OnPick(peer::PickProtocol::Down message) {
  const auto& route = std::get<peer::Route>(message);
  Step(event::Picked{route.address, route.incarnation});
}

void GatewayCall::PickClosed(Status status) {
  if (status.ok()) status = Lost("prefill balancer");
  bool shed = status.reason() == Reason::kOverloaded || status.reason() == Reason::kNoInstance ||
              status.reason() == Reason::kModelNotFound;
  if (shed) return Step(event::PickFailed{std::move(status)});
  TryNextReplica(std::move(status));
}

void GatewayCall::OnPrefill(peer::PrefillProtocol::Down message) {
  if (std::holds_alternative<peer::PrefillAccepted>(message)) return Step(event::PrefillAccepted{});
  if (auto* target = std::get_if<peer::DecodeTarget>(&message)) {
    return Step(event::DecodeTarget{target->address, target->incarnation, target->session});
  }
  const auto& first = std::get<peer::FirstToken>(message);
  Step(event::FirstToken{first.token, first.cached_tokens, first.finish});
}

void GatewayCall::PrefillClosed(Status status) { Step(event::PrefillClosed{std::move(status)}); }

void GatewayCall::OnDecode(peer::DecodeProtocol::Down message) {
  if (auto* chunk = std::get_if<peer::TokenChunk>(&message)) {
    return Step(event::Tokens{chunk->first_index, std::move(chunk->tokens)});
  }
  Step(event::DecodeFinished{std::get<peer::DecodeFinished>(message).finish});
}

void GatewayCall::DecodeClosed(Status status) { Step(event::DecodeClosed{std::move(status)}); }

// ---- the end

gateway::Usage GatewayCall::CurrentUsage() const {
  if (!machine_) return {};
  return {machine_->generation().prompt_tokens, emitted_, machine_->cached_tokens()};
}

void GatewayCall::Cancel() {
  if (ended()) return;
  End("cancelled", Cancelled("the client left or closed its sending side, or the gateway stops"));
}

CompletionSink* GatewayCall::End(const std::string& outcome, const Status& status) {
  CompletionSink* sink = std::exchange(sink_, nullptr);
  Close(pick_);
  Close(prefill_);
  Close(decode_);
  runtime_.control_.Cancel(timer_);
  runtime_.FreeSlot(gateway::CallId{id_});

  GatewayMetrics& metrics = *runtime_.metrics_;
  metrics.Outcome(outcome).Add();
  gateway::Usage usage = CurrentUsage();
  metrics.prompt_tokens.Add(usage.prompt_tokens);
  metrics.completion_tokens.Add(usage.completion_tokens);
  metrics.cached_tokens.Add(usage.cached_tokens);
  metrics.request_seconds.Observe(ToSeconds(runtime_.control_.Now() - started_));
  if (emitted_ > 1) metrics.token_seconds.Observe(ToSeconds(last_token_at_ - first_token_at_) / (emitted_ - 1));
  LogEnd(outcome, status);
  runtime_.Ended(gateway::CallId{id_});
  return sink;
}

void GatewayCall::LogEnd(const std::string& outcome, const Status& status) const {
  gateway::Usage usage = CurrentUsage();
  Log(LogLevel::kInfo, "request_done",
      {{"request_id", request_->request_id},
       {"model", model_ ? model_->name : ""},
       {"outcome", outcome},
       {"status", status.ToString()},
       {"seed", seed_},
       {"prompt_tokens", usage.prompt_tokens},
       {"cached_tokens", usage.cached_tokens},
       {"completion_tokens", usage.completion_tokens},
       {"reentries", machine_ ? machine_->reentries() : 0},
       {"first_token_ms", emitted_ > 0 ? ToMilliseconds(first_token_at_ - started_) : 0.0},
       {"total_ms", ToMilliseconds(runtime_.control_.Now() - started_)}});
}

}  // namespace millrace::runtime
