#pragma once
// The life of one request between the gateway and its workers, as a pure machine: Step(event, now) returns what to do.
//
//   pick -> prefill (accepted, decode target, first token) -> decode -> finished
//
// When a worker dies, the request enters again at pick with what was generated so far; sampling is a function of seed
// and position, so the tokens are those it would have had. Streams are named by stage and there is at most one of each;
// after an action closes or reopens a stage, events of its old stream must not be given any more.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/random.h"
#include "common/base/status.h"
#include "common/base/time.h"
#include "common/cluster/instance.h"
#include "common/request/generation.h"

namespace millrace::gateway {

struct RequestRules {
  uint32_t failure_budget = 2;          // re-entries after failures
  uint32_t most_free_reentries = 64;    // after evictions and drains, which are nobody's failure
  Duration backoff = Milliseconds(50);  // before the first re-entry; doubles; jittered by half
  Duration backoff_max = Seconds(1);
  Duration shed_retry = Milliseconds(250);         // when a shed gives no advice
  Duration absence_patience = Milliseconds(2500);  // how long nobody may be there before the request fails
  Duration overload_patience = Seconds(30);        // how long everybody may be full, for requests already accepted
  Duration accept_timeout = Seconds(60);           // from pick to a worker's acceptance
  Duration redirect_timeout = Seconds(3);          // for prefill to name another decode instance after the first died
  Duration request_timeout = Seconds(3600);
};

namespace event {
struct Begin {};
struct SlotGranted {};
struct Picked {
  std::string address;
  cluster::Incarnation incarnation = 0;
};
struct PickFailed {
  Status status;  // the balancer's answer, or kPeerLost when no replica could be asked
};
struct PrefillAccepted {};
struct DecodeTarget {
  std::string address;
  cluster::Incarnation incarnation = 0;
  std::string session;
};
struct FirstToken {
  request::TokenId token = 0;
  uint32_t cached_tokens = 0;
  request::FinishReason finish = request::FinishReason::kNone;
};
struct PrefillClosed {
  Status status;  // OK: the hand-over is complete
};
struct Tokens {
  uint32_t first_index = 0;
  std::vector<request::TokenId> tokens;
};
struct DecodeFinished {
  request::FinishReason finish = request::FinishReason::kNone;
};
struct DecodeClosed {
  Status status;
};
struct StopString {
  uint32_t generated = 0;  // ids up to the one that completed it; what came after is dropped
};
struct Timer {};  // at or after deadline()
struct Cancel {};
}  // namespace event

using Event = std::variant<event::Begin, event::SlotGranted, event::Picked, event::PickFailed, event::PrefillAccepted,
                           event::DecodeTarget, event::FirstToken, event::PrefillClosed, event::Tokens,
                           event::DecodeFinished, event::DecodeClosed, event::StopString, event::Timer, event::Cancel>;

namespace action {
struct AskSlot {};   // re-entries at once are bounded: answer with SlotGranted
struct FreeSlot {};  // gives back what was granted, or withdraws the question
struct OpenPick {
  std::vector<cluster::Incarnation> excluded;
};
struct OpenPrefill {
  std::string address;
  cluster::Incarnation incarnation = 0;
  std::vector<cluster::Incarnation> excluded_decode;
};
struct OpenDecode {
  std::string address;
  cluster::Incarnation incarnation = 0;
  std::string session;
  uint32_t from = 0;
};
struct ClosePick {};
struct ClosePrefill {};
struct CloseDecode {};
struct Accept {};  // once, before any Emit
struct Emit {
  request::TokenId token = 0;
  bool ends_text = false;  // a stop id: it has no text
};
struct Reenter {  // for logs and metrics
  Status cause;
  bool free = false;
};
struct Finish {
  request::FinishReason reason = request::FinishReason::kNone;
};
struct Fail {
  Status status;
};
}  // namespace action

// Finish or Fail comes once and last, unless the request was cancelled.
using Action = std::variant<action::AskSlot, action::FreeSlot, action::OpenPick, action::OpenPrefill,
                            action::OpenDecode, action::ClosePick, action::ClosePrefill, action::CloseDecode,
                            action::Accept, action::Emit, action::Reenter, action::Finish, action::Fail>;
using Actions = std::vector<Action>;

class RequestMachine {
 public:
  // `generation.tokens` is the prompt. `jitter_seed` spreads the backoffs.
  RequestMachine(const RequestRules& rules, request::Generation generation, uint64_t jitter_seed, TimePoint now);

  Actions Step(const Event& event, TimePoint now);
  // When the next event::Timer is due; kNever when none is.
  TimePoint deadline() const;

  // Prompt and all ids generated so far; what a prefill worker is sent.
  const request::Generation& generation() const { return generation_; }
  uint32_t generated() const { return static_cast<uint32_t>(generation_.tokens.size()) - generation_.prompt_tokens; }
  uint32_t cached_tokens() const { return cached_tokens_.value_or(0); }
  bool accepted() const { return accepted_; }
  bool done() const { return phase_ == Phase::kDone; }
  uint32_t reentries() const { return failures_ + free_reentries_; }

 private:
  enum class Phase : uint8_t { kNew, kBackoff, kWaitingSlot, kPicking, kPrefilling, kDecoding, kDone };
  struct Peer {
    std::string address;
    cluster::Incarnation incarnation = 0;
  };

  void On(const event::Begin&);
  void On(const event::SlotGranted&);
  void On(const event::Picked&);
  void On(const event::PickFailed&);
  void On(const event::PrefillAccepted&);
  void On(const event::DecodeTarget&);
  void On(const event::FirstToken&);
  void On(const event::PrefillClosed&);
  void On(const event::Tokens&);
  void On(const event::DecodeFinished&);
  void On(const event::DecodeClosed&);
  void On(const event::StopString&);
  void On(const event::Timer&);
  void On(const event::Cancel&);

  void StartPick();
  void Append(request::TokenId token);
  // One worker failed the request: enter again, wait, or give up, by the error table.
  void WorkerFailed(const Status& status, cluster::Incarnation prefill, cluster::Incarnation decode);
  void Wait(const Status& status);
  void EnterAgain(const Status& cause, bool free);
  void Backoff(Duration delay);
  void CloseAll();
  void Finish(request::FinishReason reason);
  void Fail(Status status);
  template <class T>
  void Do(T action) {
    actions_.emplace_back(std::move(action));
  }

  const RequestRules rules_;
  request::Generation generation_;
  Rng jitter_;
  Actions actions_;
  TimePoint now_;
  const TimePoint request_deadline_;
  TimePoint phase_deadline_ = kNever;
  Phase phase_ = Phase::kNew;
  bool accepted_ = false;  // by any worker: the client was told
  bool attempt_accepted_ = false;
  bool slot_held_ = false;  // or asked for
  bool pick_open_ = false;
  bool prefill_open_ = false;
  bool decode_open_ = false;
  bool first_token_seen_ = false;  // of this attempt, from prefill
  bool decode_advanced_ = false;   // decode made a token of its own: the hand-over is complete
  uint32_t attempt_base_ = 0;      // generated ids when this attempt began
  uint32_t failures_ = 0;
  uint32_t free_reentries_ = 0;
  std::optional<TimePoint> waiting_since_;  // first shed in a row
  std::optional<uint32_t> cached_tokens_;   // as the first attempt that came so far reported
  Peer prefill_;
  Peer decode_;
  std::vector<cluster::Incarnation> excluded_prefill_;
  std::vector<cluster::Incarnation> excluded_decode_;
};

}  // namespace millrace::gateway
