#include "common/gateway/request_machine.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/gateway/error_table.h"

namespace millrace::gateway {

namespace {

void Exclude(std::vector<cluster::Incarnation>& list, cluster::Incarnation incarnation) {
  if (incarnation != 0 && std::find(list.begin(), list.end(), incarnation) == list.end()) list.push_back(incarnation);
}

}  // namespace

RequestMachine::RequestMachine(const RequestRules& rules, request::Generation generation, uint64_t jitter_seed,
                               TimePoint now)
    : rules_(rules),
      generation_(std::move(generation)),
      jitter_(jitter_seed),
      now_(now),
      request_deadline_(now + rules.request_timeout) {}

Actions RequestMachine::Step(const Event& event, TimePoint now) {
  now_ = now;
  if (!done()) std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(actions_, {});
}

TimePoint RequestMachine::deadline() const { return done() ? kNever : std::min(phase_deadline_, request_deadline_); }

void RequestMachine::On(const event::Begin&) {
  if (phase_ == Phase::kNew) StartPick();
}

void RequestMachine::On(const event::SlotGranted&) {
  if (phase_ == Phase::kWaitingSlot) StartPick();
}

void RequestMachine::StartPick() {
  phase_ = Phase::kPicking;
  phase_deadline_ = now_ + rules_.accept_timeout;
  attempt_accepted_ = first_token_seen_ = decode_advanced_ = false;
  attempt_base_ = generated();
  prefill_ = decode_ = {};
  pick_open_ = true;
  Do(action::OpenPick{excluded_prefill_});
}

void RequestMachine::On(const event::Picked& picked) {
  if (phase_ != Phase::kPicking) return;
  pick_open_ = false;
  Do(action::ClosePick{});
  phase_ = Phase::kPrefilling;
  prefill_ = {picked.address, picked.incarnation};
  prefill_open_ = true;
  Do(action::OpenPrefill{picked.address, picked.incarnation, excluded_decode_});
}

void RequestMachine::On(const event::PickFailed& failed) {
  if (phase_ != Phase::kPicking) return;
  pick_open_ = false;
  RetryClass retry = FindErrorRow(failed.status).retry;
  if (retry == RetryClass::kNever || (retry == RetryClass::kLater && !accepted_)) return Fail(failed.status);
  Wait(failed.status);
}

void RequestMachine::On(const event::PrefillAccepted&) {
  if (phase_ != Phase::kPrefilling || attempt_accepted_) return;
  attempt_accepted_ = true;
  phase_deadline_ = kNever;
  if (std::exchange(slot_held_, false)) Do(action::FreeSlot{});
  if (!std::exchange(accepted_, true)) Do(action::Accept{});
}

void RequestMachine::On(const event::DecodeTarget& target) {
  if (phase_ != Phase::kPrefilling) return;
  if (decode_open_) Do(action::CloseDecode{});
  if (attempt_accepted_) phase_deadline_ = kNever;
  waiting_since_.reset();  // both roles had room
  decode_ = {target.address, target.incarnation};
  decode_open_ = true;
  Do(action::OpenDecode{target.address, target.incarnation, target.session, generated()});
}

void RequestMachine::On(const event::FirstToken& first) {
  if (phase_ != Phase::kPrefilling || first_token_seen_) return;
  On(event::PrefillAccepted{});  // said by doing
  first_token_seen_ = true;
  waiting_since_.reset();
  if (!cached_tokens_) cached_tokens_ = std::min(first.cached_tokens, generation_.prompt_tokens);
  if (generated() == attempt_base_) Append(first.token);
  if (!done() && first.finish != request::FinishReason::kNone) Finish(first.finish);
}

void RequestMachine::On(const event::PrefillClosed& closed) {
  if (phase_ != Phase::kPrefilling) return;
  prefill_open_ = false;
  if (closed.status.ok() && !first_token_seen_) {
    return WorkerFailed(Internal("the prefill worker ended without a first token"), prefill_.incarnation, 0);
  }
  if (closed.status.ok() || decode_advanced_) {
    phase_ = Phase::kDecoding;
    phase_deadline_ = kNever;
    if (decode_open_) return;
    return WorkerFailed(Status(Code::kUnavailable, Reason::kPeerLost, "the decode worker was lost at the hand-over"), 0,
                        decode_.incarnation);
  }
  WorkerFailed(closed.status, prefill_.incarnation, 0);
}

void RequestMachine::On(const event::Tokens& chunk) {
  if (!decode_open_) return;
  if (chunk.first_index > generated()) {
    return WorkerFailed(Internal("the decode worker left out token " + std::to_string(generated())), 0,
                        decode_.incarnation);
  }
  for (size_t i = generated() - chunk.first_index; i < chunk.tokens.size() && !done(); ++i) {
    if (generated() > attempt_base_) decode_advanced_ = true;
    Append(chunk.tokens[i]);
  }
}

void RequestMachine::Append(request::TokenId token) {
  generation_.tokens.push_back(token);
  std::span<const request::TokenId> all(generation_.tokens);
  request::FinishReason reason = request::CheckFinish(generation_, all.subspan(generation_.prompt_tokens));
  Do(action::Emit{token, reason == request::FinishReason::kStop});
  if (reason != request::FinishReason::kNone) Finish(reason);
}

void RequestMachine::On(const event::DecodeFinished& finished) {
  if (!decode_open_) return;
  if (finished.finish == request::FinishReason::kNone || generated() == 0) {
    return WorkerFailed(Internal("the decode worker ended without a reason"), 0, decode_.incarnation);
  }
  Finish(finished.finish);
}

void RequestMachine::On(const event::DecodeClosed& closed) {
  if (!decode_open_) return;
  decode_open_ = false;
  Status status = closed.status.ok() ? Internal("the decode worker closed before the end") : closed.status;
  RetryClass retry = FindErrorRow(status).retry;
  if (phase_ == Phase::kPrefilling && retry == RetryClass::kElsewhere) {
    // Prefill sees the same death and may find another instance for the KV it holds.
    Exclude(excluded_decode_, decode_.incarnation);
    phase_deadline_ = now_ + rules_.redirect_timeout;
    return;
  }
  WorkerFailed(status, 0, decode_.incarnation);
}

void RequestMachine::On(const event::StopString& stop) {
  if (stop.generated < generated()) generation_.tokens.resize(generation_.prompt_tokens + stop.generated);
  Finish(request::FinishReason::kStop);
}

void RequestMachine::On(const event::Timer&) {
  if (now_ >= request_deadline_) {
    return Fail({Code::kDeadlineExceeded, Reason::kDeadline, "the request took longer than the server allows"});
  }
  if (now_ < phase_deadline_) return;
  phase_deadline_ = kNever;
  switch (phase_) {
    case Phase::kBackoff:
      phase_ = Phase::kWaitingSlot;
      phase_deadline_ = now_ + rules_.accept_timeout;
      slot_held_ = true;
      return Do(action::AskSlot{});
    case Phase::kWaitingSlot:
    case Phase::kPicking:
      return Fail({Code::kResourceExhausted, Reason::kOverloaded, "no worker became free in time"});
    case Phase::kPrefilling:
      if (attempt_accepted_) {
        return WorkerFailed({Code::kUnavailable, Reason::kPeerLost, "no decode worker took over in time"}, 0,
                            decode_.incarnation);
      }
      return WorkerFailed({Code::kUnavailable, Reason::kDeadline, "the prefill worker did not accept in time"},
                          prefill_.incarnation, 0);
    default:
      return;
  }
}

void RequestMachine::On(const event::Cancel&) {
  CloseAll();
  phase_ = Phase::kDone;
}

void RequestMachine::WorkerFailed(const Status& status, cluster::Incarnation prefill, cluster::Incarnation decode) {
  CloseAll();
  RetryClass retry = FindErrorRow(status).retry;
  switch (retry) {
    case RetryClass::kNever:
      return Fail(status);
    case RetryClass::kLater:
      return accepted_ ? Wait(status) : Fail(status);
    case RetryClass::kElsewhere:
    case RetryClass::kElsewhereFree:
      break;
  }
  bool free = retry == RetryClass::kElsewhereFree;
  if (!free || status.reason() == Reason::kDraining) {
    Exclude(excluded_prefill_, prefill);
    Exclude(excluded_decode_, decode);
  }
  EnterAgain(status, free);
}

// Nobody failed, but nobody can take the request now.
void RequestMachine::Wait(const Status& status) {
  CloseAll();
  if (!waiting_since_) waiting_since_ = now_;
  bool overloaded = status.reason() == Reason::kOverloaded;
  Duration patience = overloaded ? rules_.overload_patience : rules_.absence_patience;
  if (now_ - *waiting_since_ >= patience) return Fail(status);
  Duration delay = rules_.shed_retry;
  if (status.retry_after_ms()) delay = std::min<Duration>(Milliseconds(*status.retry_after_ms()), rules_.backoff_max);
  Backoff(delay);
}

void RequestMachine::EnterAgain(const Status& cause, bool free) {
  uint32_t& count = free ? free_reentries_ : failures_;
  if (count >= (free ? rules_.most_free_reentries : rules_.failure_budget)) {
    return Fail(
        {Code::kUnavailable, "gave up after " + std::to_string(reentries() + 1) + " attempts: " + cause.message()});
  }
  ++count;
  Do(action::Reenter{cause, free});
  Duration delay = rules_.backoff;
  for (uint32_t i = 1; i < failures_ && delay < rules_.backoff_max; ++i) delay *= 2;
  Backoff(std::min(delay, rules_.backoff_max));
}

void RequestMachine::Backoff(Duration delay) {
  phase_ = Phase::kBackoff;
  auto jittered = static_cast<int64_t>(static_cast<double>(delay.count()) * (0.5 + jitter_.Uniform()));
  phase_deadline_ = now_ + Duration(jittered);
}

void RequestMachine::CloseAll() {
  if (std::exchange(pick_open_, false)) Do(action::ClosePick{});
  if (std::exchange(prefill_open_, false)) Do(action::ClosePrefill{});
  if (std::exchange(decode_open_, false)) Do(action::CloseDecode{});
  if (std::exchange(slot_held_, false)) Do(action::FreeSlot{});
}

void RequestMachine::Finish(request::FinishReason reason) {
  CloseAll();
  phase_ = Phase::kDone;
  Do(action::Finish{reason});
}

void RequestMachine::Fail(Status status) {
  CloseAll();
  phase_ = Phase::kDone;
  Do(action::Fail{std::move(status)});
}

}  // namespace millrace::gateway
