#pragma once
// Private to the gateway's runtime: one request, from its prompt to its one last event.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/gateway/completion.h"
#include "common/gateway/request_machine.h"
#include "common/gateway/text_stream.h"
#include "common/peer/liveness.h"
#include "common/runtime/gateway_prompt.h"
#include "common/runtime/gateway_runtime.h"

namespace millrace::runtime {

class GatewayCall : public std::enable_shared_from_this<GatewayCall> {
 public:
  GatewayCall(GatewayRuntime& runtime, uint64_t id, gateway::CompletionRequest request,
              std::shared_ptr<const ModelText> model, gateway::CompletionSink& sink);

  void Prepare(uint32_t context_tokens);
  void FailLater(Status status);
  void Tick(TimePoint now);
  void SlotGranted() { Step(gateway::event::SlotGranted{}); }
  // Closes everything; the sink hears no more.
  void Cancel();
  bool ended() const { return sink_ == nullptr; }

 private:
  // A stream and what tells whether its other end lives.
  template <class Protocol>
  struct Link {
    std::unique_ptr<peer::ClientStream<Protocol>> stream;
    std::optional<peer::LivenessMonitor> monitor;
  };

  void OnPrepared(StatusOr<PreparedPrompt> prepared);
  void Step(const gateway::Event& event);
  void Run(const gateway::Action& action);
  void ArmTimer();

  void Do(const gateway::action::AskSlot&);
  void Do(const gateway::action::FreeSlot&);
  void Do(const gateway::action::OpenPick& open);
  void Do(const gateway::action::OpenPrefill& open);
  void Do(const gateway::action::OpenDecode& open);
  void Do(const gateway::action::ClosePick&) { Close(pick_); }
  void Do(const gateway::action::ClosePrefill&) { Close(prefill_); }
  void Do(const gateway::action::CloseDecode&) { Close(decode_); }
  void Do(const gateway::action::Accept&);
  void Do(const gateway::action::Emit& emit);
  void Do(const gateway::action::Reenter& reenter);
  void Do(const gateway::action::Finish& finish);
  void Do(const gateway::action::Fail& fail);

  void TryNextReplica(Status last);
  void OnPick(peer::PickProtocol::Down message);
  void OnPrefill(peer::PrefillProtocol::Down message);
  void OnDecode(peer::DecodeProtocol::Down message);
  template <class Protocol>
  void Open(Link<Protocol>& link, peer::Dialer<Protocol>& dialer, const std::string& address,
            typename Protocol::Up first, void (GatewayCall::*on_message)(typename Protocol::Down),
            void (GatewayCall::*on_closed)(Status));
  template <class Protocol>
  void Close(Link<Protocol>& link);
  template <class Protocol>
  void Listen(Link<Protocol>& link, TimePoint now, void (GatewayCall::*on_closed)(Status));
  void PickClosed(Status status);
  void PrefillClosed(Status status);
  void DecodeClosed(Status status);

  void FlushDelta();
  // Ends the call: closes what is open, logs, counts, and returns the sink for its last event.
  gateway::CompletionSink* End(const std::string& outcome, const Status& status);
  void LogEnd(const std::string& outcome, const Status& status) const;
  gateway::Usage CurrentUsage() const;

  GatewayRuntime& runtime_;
  const uint64_t id_;
  const std::shared_ptr<const gateway::CompletionRequest> request_;
  const std::shared_ptr<const ModelText> model_;
  gateway::CompletionSink* sink_;  // null once the call ended
  const TimePoint started_;
  TimePoint first_token_at_{};
  TimePoint last_token_at_{};
  uint64_t seed_ = 0;
  std::string prompt_text_;
  std::optional<gateway::RequestMachine> machine_;
  std::optional<gateway::TextStream> text_;
  gateway::Delta delta_;                     // collected during one step
  uint32_t emitted_ = 0;                     // ids given to the text stream
  std::vector<std::string> tried_replicas_;  // of this pick
  std::vector<cluster::Incarnation> excluded_;
  Link<peer::PickProtocol> pick_;
  Link<peer::PrefillProtocol> prefill_;
  Link<peer::DecodeProtocol> decode_;
  TimerId timer_ = TimerId::kNone;
  TimePoint timer_at_ = kNever;
};

}  // namespace millrace::runtime
