#include "common/runtime/decode_runtime.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/runtime/decode_session.h"
#include "common/runtime/worker_request.h"

namespace millrace::runtime {
namespace {

// Part of the pool that ended sequences may keep while the store writes their blocks.
constexpr uint32_t kPutShare = 8;
constexpr double kNewestRateWeight = 0.1;
constexpr uint32_t kRetryAfterMs = 250;

bool LinkBroken(const Status& status) {
  return status.reason() != Reason::kKvCorrupt && status.code() != Code::kOutOfRange &&
         status.code() != Code::kInvalidArgument;
}

const char* CauseOf(const Status& status) {
  switch (status.reason()) {
    case Reason::kKvCorrupt:
      return "kv_corrupt";
    case Reason::kPeerLost:
      return "peer_lost";
    case Reason::kDeadline:
      return "deadline";
    default:
      return status.code() == Code::kCancelled ? "cancelled" : "failed";
  }
}

}  // namespace

DecodeRuntime::DecodeRuntime(DecodeWiring wiring, DecodeOptions options)
    : wiring_(wiring),
      options_(std::move(options)),
      layout_digest_(wiring_.backend.layout().Digest()),
      pages_(wiring_.backend.kv_memory(), wiring_.backend.layout()),
      pool_(wiring_.backend.block_count()),
      writer_({wiring_.control, wiring_.checksum, wiring_.store, pool_, wiring_.metrics, "decode"}, pages_,
              std::max(1u, wiring_.backend.block_count() / kPutShare), options_.put_timeout),
      links_({wiring_.control, wiring_.checksum, wiring_.blocking}, wiring_.transport, options_.pulls_per_link,
             options_.link_idle_time),
      planner_(options_.limits),
      sessions_gauge_(wiring_.metrics.AddGauge("millrace_decode_sessions", "Sequences that this worker knows")),
      reservations_gauge_(wiring_.metrics.AddGauge("millrace_decode_reservations", "Sequences whose KV is on its way")),
      blocks_gauge_(wiring_.metrics.AddGauge("millrace_decode_held_blocks", "KV blocks in use")),
      links_gauge_(wiring_.metrics.AddGauge("millrace_decode_links", "Links to prefill workers")),
      tokens_(wiring_.metrics.AddCounter("millrace_decode_tokens_total", "Tokens generated")),
      pulled_bytes_(wiring_.metrics.AddCounter("millrace_decode_pulled_bytes_total", "Bytes of KV read and verified")),
      step_seconds_(wiring_.metrics.AddHistogram("millrace_decode_step_seconds", "Time of one engine step",
                                                 {0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1})) {
  for (const char* cause : {"finished", "cancelled", "evicted", "attach_timeout", "kv_corrupt", "peer_lost", "deadline",
                            "refused", "failed"}) {
    Ended(cause);
  }
}

DecodeRuntime::~DecodeRuntime() { wiring_.control.Cancel(tick_); }

Counter& DecodeRuntime::Ended(const char* cause) {
  return wiring_.metrics.AddCounter("millrace_decode_ended_total", "Sequences and hand-overs by how they ended",
                                    {{"cause", cause}});
}

void DecodeRuntime::Start() {
  tick_ = wiring_.control.PostAt(NextBeat(wiring_.control.Now(), options_.liveness.heartbeat), [this] { Tick(); });
}

void DecodeRuntime::Drain() {
  draining_ = true;
  Changed();
}

bool DecodeRuntime::idle() const {
  return sessions_.empty() && attaching_.empty() && links_.open() == 0 && writer_.pending() == 0 && !stepping_;
}

DecodeSession* DecodeRuntime::Find(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

std::vector<scheduler::DecodeSequence> DecodeRuntime::Held() const {
  std::vector<scheduler::DecodeSequence> held;
  for (const auto& [id, session] : sessions_) {
    const bool running = session->state == DecodeState::kRunning;
    if (!running && session->state != DecodeState::kReserved) continue;
    held.push_back(
        {id, session->kv_tokens, session->remaining(), static_cast<uint32_t>(session->blocks.size()), running});
  }
  return held;
}

// ---- hand-over ----

peer::StreamHandler<peer::HandoffProtocol::Up> DecodeRuntime::Accept(
    std::unique_ptr<peer::ServerStream<peer::HandoffProtocol>> stream) {
  if (sessions_.size() >= options_.most_streams) {
    stream->Close(Status(Code::kResourceExhausted, Reason::kOverloaded, "too many hand-overs are open")
                      .WithRetryAfterMs(kRetryAfterMs));
    Ended("refused").Add();
    return {};
  }
  const uint64_t id = next_id_++;
  auto session = std::make_unique<DecodeSession>();
  session->id = id;
  session->since = wiring_.control.Now();
  session->handoff = std::move(stream);
  sessions_.emplace(id, std::move(session));
  Changed();
  return {[this, id](peer::HandoffProtocol::Up message) { OnHandoff(id, std::move(message)); },
          [this, id](const Status& status) { OnHandoffClosed(id, status); }};
}

void DecodeRuntime::OnHandoff(uint64_t id, peer::HandoffProtocol::Up message) {
  DecodeSession* session = Find(id);
  if (session == nullptr || session->handoff == nullptr) return;
  if (session->prefill) session->prefill->Heard();
  if (const auto* heartbeat = std::get_if<peer::Heartbeat>(&message)) {
    if (session->prefill) session->prefill->Heard(*heartbeat);
    return;
  }
  if (auto* reserve = std::get_if<peer::Reserve>(&message)) {
    const Status status = OnReserve(*session, std::move(*reserve));
    if (!status.ok()) End(*session, status, session->state == DecodeState::kNew ? "refused" : "failed");
    return;
  }
  Status status;
  if (const auto* blocks = std::get_if<peer::LayerBlocks>(&message)) {
    status = OnLayerBlocks(*session, *blocks);
  } else {
    status = OnHandoffEnd(*session, std::get<peer::HandoffEnd>(message));
  }
  if (!status.ok()) return End(*session, status, "failed");
  MaybeActivate(*session);
}

void DecodeRuntime::OnHandoffClosed(uint64_t id, const Status& status) {
  DecodeSession* session = Find(id);
  if (session == nullptr || session->handoff == nullptr) return;
  session->handoff = nullptr;
  // A client that cancels and one that is gone may look alike; pulls that hang end with the drain timeout then.
  const bool lost = status.code() == Code::kUnavailable && status.reason() == Reason::kPeerLost;
  const std::shared_ptr<PeerLink> link = session->link;
  End(*session, {Code::kUnavailable, Reason::kPeerLost, "the prefill worker ended the hand-over: " + status.message()},
      lost ? "peer_lost" : "cancelled");
  if (lost && link) links_.Retire(link);
}

Status DecodeRuntime::Admission(const peer::Reserve& reserve) {
  MR_RETURN_IF_ERROR(CheckIncarnation(reserve.incarnation, options_.incarnation, "decode"));
  if (draining_) return {Code::kUnavailable, Reason::kDraining, "decode worker is draining"};
  if (reserve.layout_digest != layout_digest_) {
    return {Code::kFailedPrecondition, Reason::kShapeMismatch,
            "KV layouts differ: prefill " + reserve.layout_digest + ", decode " + layout_digest_};
  }
  MR_RETURN_IF_ERROR(ValidateGeneration(reserve.generation, wiring_.backend));
  if (reserve.session.empty() || names_.contains(reserve.session)) {
    return InvalidArgument("session: empty or in use");
  }
  const auto tokens = static_cast<uint32_t>(reserve.generation.tokens.size());
  const uint32_t remaining = reserve.generation.prompt_tokens + reserve.generation.max_new_tokens - tokens;
  if (!planner_.Admits(Held(), pool_.free(), tokens, remaining)) {
    return Status(Code::kResourceExhausted, Reason::kOverloaded,
                  "no room for " + std::to_string(tokens) + " tokens: " + std::to_string(pool_.free()) +
                      " blocks are free")
        .WithRetryAfterMs(kRetryAfterMs);
  }
  return OkStatus();
}

Status DecodeRuntime::OnReserve(DecodeSession& session, peer::Reserve reserve) {
  if (session.state != DecodeState::kNew) return InvalidArgument("a second Reserve on one stream");
  MR_RETURN_IF_ERROR(Admission(reserve));
  MR_ASSIGN_OR_RETURN(session.link, links_.Get(reserve.source, reserve.source_incarnation));
  MR_ASSIGN_OR_RETURN(session.region, session.link->Import(reserve.source.region_descriptor));
  session.generation = std::move(reserve.generation);
  session.ids = session.generation.tokens;
  session.kv_tokens = static_cast<uint32_t>(session.ids.size());
  session.blocks = pool_.Allocate(kv::BlocksFor(session.kv_tokens));
  MR_CHECK(!session.blocks.empty());  // the planner counted them
  session.announced.assign(session.blocks.size() * pages_.layers(), false);
  session.name = std::move(reserve.session);
  names_.emplace(session.name, session.id);
  session.state = DecodeState::kReserved;
  session.since = session.last_progress = wiring_.control.Now();
  session.prefill.emplace(options_.liveness, session.since);
  session.handoff->Send(peer::Reserved{});
  Changed();
  return OkStatus();
}

Status DecodeRuntime::CheckLayerBlock(const DecodeSession& session, const peer::LayerBlock& block) const {
  const auto refuse = [&](const char* why) {
    return InvalidArgument("layer " + std::to_string(block.layer) + ", block " + std::to_string(block.block) + ": " +
                           why);
  };
  if (block.layer >= pages_.layers() || block.block >= session.blocks.size()) return refuse("out of range");
  if (session.announced[block.layer * session.blocks.size() + block.block]) return refuse("announced before");
  if (block.length != TokensInBlock(session.kv_tokens, block.block) * pages_.row_bytes()) {
    return refuse("wrong length");
  }
  return OkStatus();
}

Status DecodeRuntime::OnLayerBlocks(DecodeSession& session, const peer::LayerBlocks& message) {
  if (session.state != DecodeState::kReserved || session.end) {
    return InvalidArgument("layer blocks before Reserve or after HandoffEnd");
  }
  session.last_progress = wiring_.control.Now();
  for (const peer::LayerBlock& block : message.blocks) {
    MR_RETURN_IF_ERROR(CheckLayerBlock(session, block));
    session.announced[block.layer * session.blocks.size() + block.block] = true;
    ++session.announced_count;
    ++session.pins;
    const uint32_t tokens = TokensInBlock(session.kv_tokens, block.block);
    Pull pull;
    pull.owner = session.id;
    pull.region = session.region;
    pull.offset = block.offset;
    pull.into = pages_.rows(session.blocks[block.block], block.layer, tokens);
    pull.crc32c = block.crc32c;
    pull.done = [this, id = session.id, bytes = block.length](const Status& status) {
      if (status.ok()) pulled_bytes_.Add(bytes);
      OnPulled(id, status);
    };
    session.link->Start(std::move(pull));
  }
  return OkStatus();
}

void DecodeRuntime::OnPulled(uint64_t id, const Status& status) {
  DecodeSession& session = *Find(id);  // pinned by this pull
  --session.pins;
  if (session.state == DecodeState::kEnded) return Reap(id);
  if (status.ok()) {
    ++session.verified_count;
    session.last_progress = wiring_.control.Now();
    return MaybeActivate(session);
  }
  const std::shared_ptr<PeerLink> link = session.link;
  const bool corrupt = status.reason() == Reason::kKvCorrupt;
  Log(LogLevel::kWarning, "kv_pull_failed",
      {{"request_id", session.generation.request_id}, {"status", status.ToString()}});
  End(session, corrupt ? status : Status(Code::kUnavailable, Reason::kPeerLost, "reading KV: " + status.message()),
      corrupt ? "kv_corrupt" : "peer_lost");
  if (LinkBroken(status)) links_.Retire(link);
}

Status DecodeRuntime::OnHandoffEnd(DecodeSession& session, const peer::HandoffEnd& end) {
  if (session.state != DecodeState::kReserved || session.end) {
    return InvalidArgument("HandoffEnd before Reserve or repeated");
  }
  if (session.announced_count != session.announced.size()) {
    return InvalidArgument("HandoffEnd after " + std::to_string(session.announced_count) + " of " +
                           std::to_string(session.announced.size()) + " layer blocks");
  }
  if (end.first_token < 0 || static_cast<uint32_t>(end.first_token) >= wiring_.backend.vocab_size()) {
    return InvalidArgument("first_token: not in the vocabulary");
  }
  session.end = end;
  return OkStatus();
}

void DecodeRuntime::MaybeActivate(DecodeSession& session) {
  if (session.state != DecodeState::kReserved || !session.end) return;
  if (session.verified_count != session.announced.size()) return;
  session.handoff->Send(peer::HandoffComplete{});
  session.handoff->Close(OkStatus());
  session.handoff = nullptr;
  session.link = nullptr;
  session.prefill.reset();
  session.announced = {};
  session.state = DecodeState::kRunning;
  session.since = wiring_.control.Now();
  session.put_blocks = session.kv_tokens / kv::kBlockTokens;  // the prefill worker puts those
  if (wiring_.store != nullptr && session.generation.cache_write) {
    session.keys = kv::BlockKeys(kv::RootKey(layout_digest_, session.generation.tenant_salt), session.ids);
  }
  session.ids.push_back(session.end->first_token);
  Deliver(session);
  const request::FinishReason finish = request::CheckFinish(session.generation, session.generated());
  if (finish != request::FinishReason::kNone) return Finish(session, finish);
  MaybeStep();
  Changed();
}

// ---- gateway ----

peer::StreamHandler<peer::DecodeProtocol::Up> DecodeRuntime::Accept(
    std::unique_ptr<peer::ServerStream<peer::DecodeProtocol>> stream) {
  if (attaching_.size() + attached_.size() >= options_.most_streams) {
    stream->Close(Status(Code::kResourceExhausted, Reason::kOverloaded, "too many gateway streams are open")
                      .WithRetryAfterMs(kRetryAfterMs));
    return {};
  }
  const uint64_t id = next_id_++;
  attaching_.emplace(id, Attaching{std::move(stream), wiring_.control.Now()});
  return {[this, id](peer::DecodeProtocol::Up message) { OnAttach(id, std::move(message)); },
          [this, id](const Status&) { OnGatewayClosed(id); }};
}

void DecodeRuntime::OnAttach(uint64_t stream_id, peer::DecodeProtocol::Up message) {
  const auto waiting = attaching_.find(stream_id);
  if (waiting == attaching_.end()) return;
  auto stream = std::move(waiting->second.stream);
  attaching_.erase(waiting);
  const auto& attach = std::get<peer::Attach>(message);
  const Status meant = CheckIncarnation(attach.incarnation, options_.incarnation, "decode");
  if (!meant.ok()) return stream->Close(meant);
  const auto name = names_.find(attach.session);
  if (name == names_.end()) return stream->Close(NotFound("no session " + attach.session));
  DecodeSession& session = *Find(name->second);
  if (session.gateway) {
    session.gateway->Close({Code::kAborted, "another stream attached to the session"});
    attached_.erase(session.gateway_id);
  }
  session.gateway = std::move(stream);
  session.gateway_id = stream_id;
  session.sent = attach.from;
  attached_[stream_id] = session.id;
  if (session.state == DecodeState::kEnded) {
    DeliverEnd(session);
    return Reap(session.id);
  }
  Deliver(session);
}

void DecodeRuntime::OnGatewayClosed(uint64_t stream_id) {
  attaching_.erase(stream_id);
  const auto attached = attached_.find(stream_id);
  if (attached == attached_.end()) return;
  DecodeSession& session = *Find(attached->second);
  attached_.erase(attached);
  session.gateway = nullptr;
  if (session.state != DecodeState::kEnded) End(session, Cancelled("the gateway cancelled"), "cancelled");
}

void DecodeRuntime::Deliver(DecodeSession& session) {
  const std::span<const request::TokenId> generated = session.generated();
  if (!session.gateway || session.state == DecodeState::kReserved || session.sent >= generated.size()) return;
  const std::span<const request::TokenId> unsent = generated.subspan(session.sent);
  session.gateway->Send(peer::TokenChunk{session.sent, {unsent.begin(), unsent.end()}});
  session.sent = static_cast<uint32_t>(generated.size());
}

void DecodeRuntime::DeliverEnd(DecodeSession& session) {
  session.lingers = false;
  Deliver(session);
  if (session.result.ok()) session.gateway->Send(peer::DecodeFinished{session.finish});
  session.gateway->Close(session.result);
  session.gateway = nullptr;
  attached_.erase(session.gateway_id);
}

// ---- batch ----

std::shared_ptr<DecodeStep> DecodeRuntime::MakeStep() {
  const std::vector<scheduler::DecodeSequence> held = Held();
  uint32_t owned = 0;
  for (const scheduler::DecodeSequence& sequence : held) owned += sequence.blocks;
  // Blocks that belong to no live sequence are on their way back: nobody is preempted for want of them.
  const scheduler::DecodePlan plan = planner_.Plan(held, pool_.total() - owned);
  for (const uint64_t id : plan.preempt) {
    End(*Find(id), {Code::kAborted, Reason::kKvEvicted, "preempted: the decode worker ran out of KV blocks"},
        "evicted");
  }
  auto step = std::make_shared<DecodeStep>();
  for (const uint64_t id : plan.run) {
    DecodeSession& session = *Find(id);
    if (session.blocks.size() < kv::BlocksFor(uint64_t{session.kv_tokens} + 1)) {
      const std::vector<kv::BlockIndex> more = pool_.Allocate(1);
      if (more.empty()) continue;  // runs again when a block is back
      session.blocks.push_back(more.front());
    }
    ++session.pins;
    step->parts.push_back({&session, session.ids.back(), 0});
  }
  for (const DecodePart& part : step->parts) {
    step->sequences.push_back({{&part.token, 1}, part.session->kv_tokens, part.session->blocks, true});
  }
  return step;
}

void DecodeRuntime::MaybeStep() {
  if (stepping_) return;
  auto step = MakeStep();
  if (step->parts.empty()) return;
  stepping_ = true;
  wiring_.engine.Post([this, step] {
    RunStep(*step);
    wiring_.control.Post([this, step] { FinishStep(*step); });
  });
}

void DecodeRuntime::RunStep(DecodeStep& step) {
  const TimePoint begin = wiring_.engine.Now();
  step.status = wiring_.backend.Step(step.sequences, nullptr);
  for (size_t i = 0; step.status.ok() && i < step.parts.size(); ++i) {
    const DecodeSession& session = *step.parts[i].session;
    step.parts[i].sampled =
        request::Sample(wiring_.backend.logits()[i], session.generation, session.generated(), scratch_);
  }
  step.took = wiring_.engine.Now() - begin;
}

void DecodeRuntime::FinishStep(DecodeStep& step) {
  step_seconds_.Observe(ToSeconds(step.took));
  if (step.took > Duration(0)) {
    const double rate = static_cast<double>(step.parts.size()) / ToSeconds(step.took);
    tokens_per_second_ += (tokens_per_second_ > 0 ? kNewestRateWeight : 1.0) * (rate - tokens_per_second_);
  }
  for (const DecodePart& part : step.parts) {
    DecodeSession& session = *part.session;
    --session.pins;
    if (session.state == DecodeState::kEnded) {
      Reap(session.id);
    } else if (!step.status.ok()) {
      End(session, Internal("engine: " + step.status.message()), "failed");
    } else {
      TokenDone(session, part.sampled);
    }
  }
  stepping_ = false;
  MaybeStep();
  Changed();
}

void DecodeRuntime::TokenDone(DecodeSession& session, request::TokenId token) {
  ++session.kv_tokens;
  session.ids.push_back(token);
  tokens_.Add();
  PutFullBlocks(session);
  Deliver(session);
  const request::FinishReason finish = request::CheckFinish(session.generation, session.generated());
  if (finish != request::FinishReason::kNone) Finish(session, finish);
}

void DecodeRuntime::PutFullBlocks(DecodeSession& session) {
  if (wiring_.store == nullptr || !session.generation.cache_write) return;
  for (; session.put_blocks < session.kv_tokens / kv::kBlockTokens; ++session.put_blocks) {
    const size_t block = session.put_blocks;
    const kv::BlockKey parent =
        block == 0 ? kv::RootKey(layout_digest_, session.generation.tenant_salt) : session.keys[block - 1];
    session.keys.push_back(
        kv::ChildKey(parent, std::span(session.ids).subspan(block * kv::kBlockTokens, kv::kBlockTokens)));
    writer_.Put(session.keys.front(), session.keys[block], session.blocks[block]);
  }
}

// ---- ends ----

void DecodeRuntime::Finish(DecodeSession& session, request::FinishReason finish) {
  session.finish = finish;
  planner_.Finished(static_cast<uint32_t>(session.generated().size()));
  End(session, OkStatus(), "finished");
}

void DecodeRuntime::End(DecodeSession& session, const Status& status, const char* cause) {
  Ended(cause).Add();
  if (session.handoff) session.handoff->Close(status);
  session.handoff = nullptr;
  session.result = status;
  session.lingers = session.state == DecodeState::kRunning && !session.gateway && status.code() != Code::kCancelled &&
                    status.reason() != Reason::kDeadline;
  if (session.gateway) DeliverEnd(session);
  if (session.link) session.pins -= session.link->Drop(session.id);
  session.state = DecodeState::kEnded;
  session.ended = wiring_.control.Now();
  Reap(session.id);
}

void DecodeRuntime::Reap(uint64_t id) {
  const auto found = sessions_.find(id);
  DecodeSession& session = *found->second;
  if (session.pins > 0) return;
  session.link = nullptr;
  pool_.ReleaseAll(std::exchange(session.blocks, {}));
  if (!session.lingers) {
    if (!session.name.empty()) names_.erase(session.name);
    sessions_.erase(found);
  }
  Changed();
}

cluster::Load DecodeRuntime::load() const {
  cluster::Load load;
  load.draining = draining_;
  load.busy = stepping_;
  load.progress = wiring_.backend.progress();
  for (const scheduler::DecodeSequence& sequence : Held()) {
    ++load.running;
    load.kv_tokens += sequence.tokens;
  }
  load.free_blocks = pool_.free();
  load.tokens_per_second = tokens_per_second_;
  return load;
}

void DecodeRuntime::Changed() {
  sessions_gauge_.Set(static_cast<double>(sessions_.size()));
  reservations_gauge_.Set(static_cast<double>(std::count_if(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second->state == DecodeState::kReserved;
  })));
  blocks_gauge_.Set(pool_.held());
  links_gauge_.Set(static_cast<double>(links_.open()));
  if (on_load_change_) on_load_change_();
}

void DecodeRuntime::TickSession(DecodeSession& session, TimePoint now, const peer::Heartbeat& heartbeat) {
  if (session.gateway) session.gateway->Send(heartbeat);
  if (session.handoff) session.handoff->Send(heartbeat);
  const std::shared_ptr<PeerLink> link = session.link;
  switch (session.state) {
    case DecodeState::kNew:
      if (now - session.since < options_.liveness.silence) return;
      return End(session, {Code::kDeadlineExceeded, Reason::kDeadline, "no Reserve came on the stream"}, "deadline");
    case DecodeState::kReserved: {
      Status status = session.prefill->Tick(now);
      const bool lost = !status.ok();
      if (!lost && now - session.last_progress >= options_.handoff_timeout) {
        status = {Code::kDeadlineExceeded, Reason::kDeadline, "the hand-over made no progress"};
      }
      if (status.ok()) return;
      End(session, status.Annotate("prefill worker"), CauseOf(status));
      if (lost) links_.Retire(link);
      return;
    }
    case DecodeState::kRunning:
      if (session.gateway || now - session.since < options_.attach_timeout) return;
      return End(session, {Code::kDeadlineExceeded, Reason::kDeadline, "no gateway came for the session"},
                 "attach_timeout");
    case DecodeState::kEnded:
      if (link && now - session.ended >= options_.drain_timeout) links_.Retire(link);
      if (!session.lingers || now - session.since < options_.attach_timeout) return;
      session.lingers = false;
      return Reap(session.id);
  }
}

void DecodeRuntime::Tick() {
  const TimePoint now = wiring_.control.Now();
  const peer::Heartbeat heartbeat{wiring_.backend.progress(), stepping_};
  std::vector<uint64_t> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const uint64_t id : ids) {
    if (DecodeSession* session = Find(id)) TickSession(*session, now, heartbeat);
  }
  std::erase_if(attaching_, [&](const auto& entry) { return now - entry.second.opened >= options_.liveness.silence; });
  links_.RetireUnused(now, draining_);
  MaybeStep();
  Changed();
  Start();
}

}  // namespace millrace::runtime
