#include "common/runtime/prefill_handoff.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "common/base/random.h"

namespace millrace::runtime {
namespace {

constexpr size_t kBlocksPerMessage = 512;

std::string NewSession() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string session;
  for (const uint64_t word : {RandomSeed(), RandomSeed()}) {
    for (int shift = 60; shift >= 0; shift -= 4) session.push_back(kDigits[(word >> shift) & 15]);
  }
  return session;
}

bool PeerLost(const Status& status) { return status.reason() == Reason::kPeerLost; }

}  // namespace

PrefillHandoff::PrefillHandoff(PrefillHandoffWiring wiring, const PrefillHandoffOptions& options,
                               const request::Generation& generation, Events events)
    : wiring_(wiring), options_(options), generation_(generation), events_(std::move(events)) {}

void PrefillHandoff::Start(std::vector<cluster::Incarnation> excluded, size_t first_replica) {
  excluded_ = std::move(excluded);
  first_replica_ = first_replica;
  BeginAttempt();
}

void PrefillHandoff::BeginAttempt() {
  ++attempt_;
  deadline_ = wiring_.control.Now() + options_.reserve_timeout;
  replicas_ = wiring_.decode_balancers.Addresses();
  if (!replicas_.empty()) {
    std::rotate(replicas_.begin(), replicas_.begin() + static_cast<std::ptrdiff_t>(first_replica_ % replicas_.size()),
                replicas_.end());
  }
  Pick();
}

void PrefillHandoff::Pick() {
  pick_ = nullptr;
  if (replicas_.empty()) {
    return NobodyLeft({Code::kUnavailable, Reason::kNoInstance, "no decode balancer answers: none known or all lost"});
  }
  const std::string address = replicas_.front();
  replicas_.erase(replicas_.begin());
  monitor_.emplace(options_.liveness, wiring_.control.Now());
  pick_ = wiring_.pick_dialer.Open(address, {[this](peer::PickProtocol::Down message) { OnPicked(std::move(message)); },
                                             [this](const Status& status) { OnPickClosed(status); }});
  peer::PickRequest request;
  request.request_id = generation_.request_id;
  request.layout_digest = options_.layout_digest;
  request.prompt_tokens = static_cast<uint32_t>(generation_.tokens.size());
  request.max_new_tokens = generation_.prompt_tokens + generation_.max_new_tokens - request.prompt_tokens;
  request.excluded = excluded_;
  pick_->Send(std::move(request));
}

void PrefillHandoff::OnPicked(peer::PickProtocol::Down message) {
  if (const auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return monitor_->Heard(*heartbeat);
  Reserve(std::get<peer::Route>(message));
}

void PrefillHandoff::OnPickClosed(const Status& status) {
  if (PeerLost(status) || status.ok()) return Pick();  // another replica knows as much
  NobodyLeft(status.Annotate("decode balancer"));
}

void PrefillHandoff::NobodyLeft(const Status& status) {
  events_.attempt_failed(status);
  Fail(attempt_failure_.ok() ? status : attempt_failure_);
}

void PrefillHandoff::Reserve(const peer::Route& route) {
  pick_ = nullptr;
  route_ = route;
  session_ = NewSession();
  reserved_ = false;
  monitor_.emplace(options_.liveness, wiring_.control.Now());
  handoff_ = wiring_.handoff_dialer.Open(
      route_.address, {[this](peer::HandoffProtocol::Down message) { OnHandoff(std::move(message)); },
                       [this](const Status& status) {
                         AttemptFailed(status.ok() ? Status(Code::kUnavailable, Reason::kPeerLost,
                                                            "the hand-over ended before it was complete")
                                                   : status);
                       }});
  peer::Reserve reserve;
  reserve.incarnation = route_.incarnation;
  reserve.session = session_;
  reserve.generation = generation_;
  reserve.layout_digest = options_.layout_digest;
  reserve.source = options_.memory;
  reserve.source_incarnation = options_.incarnation;
  handoff_->Send(std::move(reserve));
}

void PrefillHandoff::OnHandoff(peer::HandoffProtocol::Down message) {
  if (const auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return monitor_->Heard(*heartbeat);
  monitor_->Heard();
  if (std::holds_alternative<peer::Reserved>(message)) return OnReserved();
  if (!end_ || !reserved_) {
    return AttemptFailed({Code::kInternal, "decode worker completed a hand-over that had not ended"});
  }
  handoff_->Close(OkStatus());
  handoff_ = nullptr;
  const auto complete = events_.complete;
  complete();
}

void PrefillHandoff::OnReserved() {
  if (reserved_) return;
  reserved_ = true;
  deadline_ = kNever;
  events_.reserved({route_.address, route_.incarnation, session_});
  SendBlocks(0);
  if (end_) SendEnd();
}

void PrefillHandoff::SendBlocks(size_t from) {
  for (size_t at = from; at < announced_.size(); at += kBlocksPerMessage) {
    const size_t to = std::min(announced_.size(), at + kBlocksPerMessage);
    handoff_->Send(peer::LayerBlocks{
        {announced_.begin() + static_cast<std::ptrdiff_t>(at), announced_.begin() + static_cast<std::ptrdiff_t>(to)}});
  }
}

void PrefillHandoff::Announce(std::vector<peer::LayerBlock> blocks) {
  const size_t from = announced_.size();
  announced_.insert(announced_.end(), blocks.begin(), blocks.end());
  if (reserved_) SendBlocks(from);
}

void PrefillHandoff::End(const peer::HandoffEnd& end) {
  end_ = end;
  if (reserved_) SendEnd();
}

void PrefillHandoff::SendEnd() {
  deadline_ = wiring_.control.Now() + options_.complete_timeout;
  handoff_->Send(*end_);
}

void PrefillHandoff::Tick(TimePoint now, const peer::Heartbeat& own) {
  if (handoff_) handoff_->Send(own);
  if (now >= deadline_) {
    // A pick that waited so long found everybody full.
    if (!handoff_) return NobodyLeft({Code::kUnavailable, Reason::kOverloaded, "no decode slot in time"});
    return AttemptFailed({Code::kDeadlineExceeded, Reason::kDeadline,
                          reserved_ ? "decode worker did not complete the hand-over in time"
                                    : "decode worker did not reserve a slot in time"});
  }
  const Status alive = monitor_ ? monitor_->Tick(now) : OkStatus();
  if (alive.ok()) return;
  if (pick_) return OnPickClosed(alive.Annotate("decode balancer"));
  AttemptFailed(alive.Annotate("decode worker"));
}

void PrefillHandoff::AttemptFailed(const Status& status) {
  const Status why = attempt_failure_ = status.Annotate("hand-over to " + route_.address);
  handoff_ = nullptr;
  reserved_ = false;
  events_.attempt_failed(why);
  if (attempt_ >= options_.attempts) return Fail(why);
  excluded_.push_back(route_.incarnation);
  ++first_replica_;
  BeginAttempt();
}

void PrefillHandoff::Fail(const Status& status) {
  pick_ = nullptr;
  handoff_ = nullptr;
  monitor_.reset();
  const auto failed = events_.failed;
  failed(status);
}

}  // namespace millrace::runtime
