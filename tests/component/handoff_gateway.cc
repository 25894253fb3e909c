#include "tests/component/handoff_gateway.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace millrace::component {

peer::StreamHandler<peer::PickProtocol::Up> TestBalancer::Accept(
    std::unique_ptr<peer::ServerStream<peer::PickProtocol>> stream) {
  const uint64_t id = next_id_++;
  streams_[id] = std::move(stream);
  return {[this, id](peer::PickProtocol::Up message) { Answer(id, std::get<peer::PickRequest>(message)); },
          [this, id](const Status&) { streams_.erase(id); }};
}

void TestBalancer::Answer(uint64_t id, const peer::PickRequest& request) {
  ++picks;
  auto& stream = *streams_[id];
  if (mode == Mode::kWait) return;
  for (const bool tried : {false, true}) {  // rather one that was tried before than nobody
    for (size_t i = 0; mode == Mode::kRoute && i < workers.size(); ++i) {
      const Worker& worker = workers[(picks + i) % workers.size()];
      const bool excluded = std::count(request.excluded.begin(), request.excluded.end(), worker.incarnation) > 0;
      if (!worker.alive || excluded != tried) continue;
      stream.Send(peer::Route{worker.address, worker.incarnation, worker.address});
      return stream.Close(OkStatus());
    }
  }
  stream.Close(Status(Code::kUnavailable, Reason::kNoInstance, "no decode worker").WithRetryAfterMs(500));
}

TestRequest::TestRequest(GatewayWiring wiring, request::Generation generation, uint32_t retries)
    : wiring_(wiring), original_(std::move(generation)), retries_(retries) {}

TestRequest::~TestRequest() {
  wiring_.control.Cancel(tick_);
  wiring_.control.Cancel(retry_);
}

void TestRequest::Start() {
  generated_.assign(original_.tokens.begin() + original_.prompt_tokens, original_.tokens.end());
  Tick();
  Enter();
}

void TestRequest::Enter() {
  retry_ = TimerId::kNone;
  base_ = static_cast<uint32_t>(generated_.size());
  const auto& workers = wiring_.prefill_workers;
  size_t at = next_prefill_;
  while (at < next_prefill_ + workers.size() && !workers[at % workers.size()].alive) ++at;
  if (at == next_prefill_ + workers.size()) return Failed({Code::kUnavailable, Reason::kNoInstance, "no prefill"});
  const Worker& worker = workers[at % workers.size()];
  next_prefill_ = at + 1;
  prefill_alive_.emplace(peer::Liveness{}, wiring_.control.Now());
  prefill_ = wiring_.prefill_dialer.Open(
      worker.address, {[this](peer::PrefillProtocol::Down message) { OnPrefill(std::move(message)); },
                       [this](const Status& status) { OnPrefillClosed(status); }});
  peer::PrefillRequest request;
  request.incarnation = worker.incarnation;
  request.generation = original_;
  request.generation.tokens.resize(original_.prompt_tokens);
  request.generation.tokens.insert(request.generation.tokens.end(), generated_.begin(), generated_.end());
  request.excluded_decode = excluded_decode_;
  prefill_->Send(std::move(request));
}

void TestRequest::OnPrefill(peer::PrefillProtocol::Down message) {
  if (const auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return prefill_alive_->Heard(*heartbeat);
  prefill_alive_->Heard();
  if (std::holds_alternative<peer::PrefillAccepted>(message)) {
    accepted_ = true;
  } else if (const auto* target = std::get_if<peer::DecodeTarget>(&message)) {
    Attach(*target);
  } else if (const auto* first = std::get_if<peer::FirstToken>(&message)) {
    cached_tokens_ = first->cached_tokens;
    Take(base_, first->token);
    if (first->finish != request::FinishReason::kNone) Finished(first->finish);
  }
}

void TestRequest::OnPrefillClosed(const Status& status) {
  prefill_ = nullptr;
  if (!status.ok()) return Failed(status);
  if (!decode_) Failed({Code::kUnavailable, Reason::kPeerLost, "decode was lost before"});
}

void TestRequest::Attach(const peer::DecodeTarget& target) {
  ++targets_;
  target_ = target;
  decode_alive_.emplace(peer::Liveness{}, wiring_.control.Now());
  decode_ = wiring_.decode_dialer.Open(target.address,
                                       {[this](peer::DecodeProtocol::Down message) { OnDecode(std::move(message)); },
                                        [this](const Status& status) { OnDecodeClosed(status); }});
  decode_->Send(peer::Attach{target.incarnation, target.session, static_cast<uint32_t>(generated_.size())});
}

void TestRequest::OnDecode(peer::DecodeProtocol::Down message) {
  if (const auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) return decode_alive_->Heard(*heartbeat);
  decode_alive_->Heard();
  if (const auto* chunk = std::get_if<peer::TokenChunk>(&message)) {
    for (uint32_t i = 0; i < chunk->tokens.size(); ++i) Take(chunk->first_index + i, chunk->tokens[i]);
  } else if (const auto* finished = std::get_if<peer::DecodeFinished>(&message)) {
    Finished(finished->finish);
  }
}

void TestRequest::OnDecodeClosed(const Status& status) {
  decode_ = nullptr;
  if (status.reason() == Reason::kKvEvicted) {
    ++evictions_;
    ++retries_;
  } else {
    excluded_decode_.push_back(target_.incarnation);
  }
  // While the prefill worker holds the KV it hands it over elsewhere, or says that it cannot.
  if (!prefill_) Failed(status.ok() ? Internal("decode closed without DecodeFinished") : status);
}

void TestRequest::Take(uint32_t index, request::TokenId token) {
  if (index < generated_.size()) {
    if (generated_[index] != token) faults_.push_back("token " + std::to_string(index) + " changed");
  } else if (index > generated_.size()) {
    faults_.push_back("gap before token " + std::to_string(index));
  } else {
    generated_.push_back(token);
  }
}

void TestRequest::Failed(const Status& status) {
  last_failure_ = status;
  prefill_ = nullptr;
  decode_ = nullptr;
  if (generated_.size() > base_) {  // all may have come before the stream broke
    const request::FinishReason finish = request::CheckFinish(original_, generated_);
    if (finish != request::FinishReason::kNone) return Finished(finish);
  }
  if (retries_ == 0) {
    result_ = status;
    wiring_.control.Cancel(tick_);
    return;
  }
  --retries_;
  retry_ = wiring_.control.PostAfter(Milliseconds(50), [this] { Enter(); });
}

void TestRequest::Finished(request::FinishReason finish) {
  finish_ = finish;
  result_ = OkStatus();
  prefill_ = nullptr;
  decode_ = nullptr;
  wiring_.control.Cancel(tick_);
}

void TestRequest::Cancel() {
  prefill_ = nullptr;
  decode_ = nullptr;
  wiring_.control.Cancel(tick_);
  wiring_.control.Cancel(retry_);
  if (!result_) result_ = Cancelled("by the test");
}

void TestRequest::Tick() {
  const TimePoint now = wiring_.control.Now();
  const Status prefill = prefill_ ? prefill_alive_->Tick(now) : OkStatus();
  const Status decode = decode_ ? decode_alive_->Tick(now) : OkStatus();
  tick_ = wiring_.control.PostAfter(Milliseconds(250), [this] { Tick(); });
  if (!prefill.ok()) return Failed(prefill);
  if (!decode.ok()) OnDecodeClosed(decode);
}

}  // namespace millrace::component
