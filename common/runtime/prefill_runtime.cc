#include "common/runtime/prefill_runtime.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/base/crc32c.h"
#include "common/base/log.h"
#include "common/kv/block_key.h"
#include "common/runtime/prefill_session.h"
#include "common/runtime/worker_request.h"

namespace millrace::runtime {
namespace {

// Part of the pool that finished prompts may keep while the store writes their blocks.
constexpr uint32_t kPutShare = 4;

PrefillHandoffOptions HandoffOptions(const PrefillOptions& options, const std::string& layout_digest) {
  PrefillHandoffOptions handoff;
  handoff.incarnation = options.incarnation;
  handoff.layout_digest = layout_digest;
  handoff.memory = options.memory;
  handoff.liveness = options.liveness;
  handoff.reserve_timeout = options.reserve_timeout;
  handoff.complete_timeout = options.lease;
  return handoff;
}

peer::LayerBlock Describe(const KvPages& pages, const PrefillSession& session, uint32_t layer, uint32_t block) {
  const kv::BlockIndex page = session.blocks[block];
  const std::span<const std::byte> rows = pages.rows(page, layer, TokensInBlock(session.tokens(), block));
  return {layer, block, pages.offset(page, layer), static_cast<uint32_t>(rows.size()),
          Crc32c(rows.data(), rows.size())};
}

}  // namespace

// Announces the blocks of last chunks layer by layer, while the next layer computes.
class LastChunkObserver final : public engine::LayerObserver {
 public:
  LastChunkObserver(PrefillRuntime& runtime, PrefillStep& step) : runtime_(runtime), step_(step) {}

  void OnLayerDone(uint32_t layer) override {
    ++step_.layers_done;
    for (const PrefillPart& part : step_.parts) {
      if (!part.last || !part.session->hands_over) continue;
      runtime_.wiring_.checksum.Post([&runtime = runtime_, part, layer] {
        std::vector<peer::LayerBlock> blocks;
        for (uint32_t block = part.announce_from; block < part.session->blocks.size(); ++block) {
          blocks.push_back(Describe(runtime.pages_, *part.session, layer, block));
        }
        runtime.wiring_.control.Post([&runtime, id = part.id, blocks = std::move(blocks)]() mutable {
          runtime.OnChecksums(id, std::move(blocks));
        });
      });
    }
  }

 private:
  PrefillRuntime& runtime_;
  PrefillStep& step_;
};

PrefillRuntime::PrefillRuntime(PrefillWiring wiring, PrefillOptions options)
    : wiring_(wiring),
      options_(std::move(options)),
      layout_digest_(wiring_.backend.layout().Digest()),
      pages_(wiring_.backend.kv_memory(), wiring_.backend.layout()),
      handoff_options_(HandoffOptions(options_, layout_digest_)),
      pool_(wiring_.backend.block_count()),
      writer_({wiring_.control, wiring_.checksum, wiring_.store, pool_, wiring_.metrics, "prefill"}, pages_,
              std::max(1u, wiring_.backend.block_count() / kPutShare), options_.put_timeout),
      planner_(options_.limits),
      sessions_gauge_(wiring_.metrics.AddGauge("millrace_prefill_sessions", "Requests that this worker knows")),
      waiting_gauge_(wiring_.metrics.AddGauge("millrace_prefill_waiting_requests", "Requests that wait for blocks")),
      blocks_gauge_(wiring_.metrics.AddGauge("millrace_prefill_held_blocks", "KV blocks in use")),
      handoffs_gauge_(wiring_.metrics.AddGauge("millrace_prefill_handoffs", "Hand-overs in progress")),
      computed_tokens_(wiring_.metrics.AddCounter("millrace_prefill_computed_tokens_total", "Prompt tokens computed")),
      cached_tokens_(
          wiring_.metrics.AddCounter("millrace_prefill_cached_tokens_total", "Prompt tokens loaded from the store")),
      step_seconds_(wiring_.metrics.AddHistogram("millrace_prefill_step_seconds", "Time of one engine step",
                                                 {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5})) {
  for (const char* outcome : {"complete", "cancelled", "refused", "failed"}) Outcome(outcome);
  for (const Reason reason : {Reason::kNone, Reason::kOverloaded, Reason::kPeerLost, Reason::kKvCorrupt,
                              Reason::kShapeMismatch, Reason::kDeadline, Reason::kNoInstance, Reason::kDraining}) {
    HandoffFailure(reason);
  }
}

PrefillRuntime::~PrefillRuntime() { wiring_.control.Cancel(tick_); }

Counter& PrefillRuntime::Outcome(const char* outcome) {
  return wiring_.metrics.AddCounter("millrace_prefill_requests_total", "Requests by how they ended",
                                    {{"outcome", outcome}});
}

Counter& PrefillRuntime::HandoffFailure(Reason reason) {
  return wiring_.metrics.AddCounter("millrace_prefill_handoff_failures_total", "Attempts to hand over that failed",
                                    {{"reason", std::string(ReasonName(reason))}});
}

void PrefillRuntime::Start() {
  tick_ = wiring_.control.PostAt(NextBeat(wiring_.control.Now(), options_.liveness.heartbeat), [this] { Tick(); });
}

void PrefillRuntime::Drain() {
  draining_ = true;
  Changed();
}

bool PrefillRuntime::idle() const { return sessions_.empty() && writer_.pending() == 0 && !stepping_; }

PrefillSession* PrefillRuntime::Find(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

peer::StreamHandler<peer::PrefillProtocol::Up> PrefillRuntime::Accept(
    std::unique_ptr<peer::ServerStream<peer::PrefillProtocol>> stream) {
  const uint64_t id = next_id_++;
  auto session = std::make_unique<PrefillSession>();
  session->id = id;
  session->opened = wiring_.control.Now();
  session->stream = std::move(stream);
  sessions_.emplace(id, std::move(session));
  Changed();
  return {[this, id](peer::PrefillProtocol::Up message) { OnRequest(id, std::move(message)); },
          [this, id](const Status&) {
            PrefillSession* cancelled = Find(id);
            if (cancelled == nullptr || cancelled->state == PrefillState::kEnded) return;
            cancelled->stream = nullptr;
            End(*cancelled, Cancelled("the gateway cancelled"), "cancelled");
          }};
}

Status PrefillRuntime::Admission(const peer::PrefillRequest& request) const {
  MR_RETURN_IF_ERROR(CheckIncarnation(request.incarnation, options_.incarnation, "prefill"));
  if (draining_) return {Code::kUnavailable, Reason::kDraining, "prefill worker is draining"};
  MR_RETURN_IF_ERROR(ValidateGeneration(request.generation, wiring_.backend));
  const auto unfinished = std::count_if(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second->state == PrefillState::kWaiting || entry.second->state == PrefillState::kFetching ||
           entry.second->state == PrefillState::kComputing;
  });
  const cluster::Load now = load();
  return scheduler::AdmitToQueue(options_.queue,
                                 {static_cast<uint32_t>(unfinished), now.queued_tokens, now.tokens_per_second},
                                 request.generation.tokens.size());
}

void PrefillRuntime::OnRequest(uint64_t id, peer::PrefillProtocol::Up message) {
  PrefillSession* session = Find(id);
  if (session == nullptr || session->state == PrefillState::kEnded) return;
  auto& request = std::get<peer::PrefillRequest>(message);
  Status status = session->state == PrefillState::kNew ? Admission(request) : InvalidArgument("a second request");
  if (!status.ok()) return End(*session, status, "refused");
  session->generation = std::move(request.generation);
  session->excluded_decode = std::move(request.excluded_decode);
  const request::Generation& generation = session->generation;
  session->hands_over = session->tokens() + 1 < generation.prompt_tokens + generation.max_new_tokens;
  if (wiring_.store != nullptr && (generation.cache_read || generation.cache_write)) {
    session->keys = kv::BlockKeys(kv::RootKey(layout_digest_, generation.tenant_salt), generation.tokens);
  }
  session->state = PrefillState::kWaiting;
  waiting_.push_back(id);
  session->stream->Send(peer::PrefillAccepted{});
  AdmitWaiting();
  Changed();
}

void PrefillRuntime::AdmitWaiting() {
  while (!waiting_.empty()) {
    PrefillSession& session = *Find(waiting_.front());
    const auto holding = std::count_if(sessions_.begin(), sessions_.end(),
                                       [](const auto& entry) { return !entry.second->blocks.empty(); });
    if (holding >= options_.most_sequences) return;
    session.blocks = pool_.Allocate(kv::BlocksFor(session.tokens()));
    if (session.blocks.empty()) return;
    waiting_.pop_front();
    session.state = PrefillState::kFetching;
    Fetch(session);
  }
}

void PrefillRuntime::Fetch(PrefillSession& session) {
  const uint32_t hit_blocks = kv::MaxHitTokens(session.tokens()) / kv::kBlockTokens;
  if (!session.generation.cache_read || session.keys.empty() || hit_blocks == 0) return Compute(session);
  StoreClient::LookupRequest request;
  request.chain = session.keys.front();
  request.keys.assign(session.keys.begin(), session.keys.begin() + hit_blocks);
  request.deadline = wiring_.control.Now() + options_.lookup_timeout;
  ++session.pins;
  wiring_.store->Lookup(std::move(request), [this, id = session.id](uint32_t present) { OnLookup(id, present); });
}

void PrefillRuntime::OnLookup(uint64_t id, uint32_t present) {
  PrefillSession& session = *Find(id);
  --session.pins;
  if (session.state == PrefillState::kEnded) return Reap(id);
  const uint32_t most = kv::MaxHitTokens(session.tokens()) / kv::kBlockTokens;
  present = std::min(present, most);
  if (present == 0) return Compute(session);
  StoreClient::LoadRequest request;
  request.chain = session.keys.front();
  request.keys.assign(session.keys.begin(), session.keys.begin() + present);
  request.blocks.assign(session.blocks.begin(), session.blocks.begin() + present);
  request.deadline = wiring_.control.Now() + options_.load_timeout;
  ++session.pins;
  wiring_.store->LoadInto(std::move(request), [this, id](uint32_t loaded) { OnLoaded(id, loaded); });
}

void PrefillRuntime::OnLoaded(uint64_t id, uint32_t loaded) {
  PrefillSession& session = *Find(id);
  --session.pins;
  if (session.state == PrefillState::kEnded) return Reap(id);
  session.done = session.cached = std::min(loaded * kv::kBlockTokens, kv::MaxHitTokens(session.tokens()));
  session.put_blocks = session.cached / kv::kBlockTokens;
  cached_tokens_.Add(session.cached);
  ChecksumBlocks(session, session.put_blocks);
  Compute(session);
}

void PrefillRuntime::Compute(PrefillSession& session) {
  session.state = PrefillState::kComputing;
  MaybeStep();
}

std::shared_ptr<PrefillStep> PrefillRuntime::MakeStep() {
  std::vector<scheduler::PrefillCandidate> candidates;
  for (const auto& [id, session] : sessions_) {
    if (session->state != PrefillState::kComputing) continue;
    candidates.push_back({id, session->done, session->tokens() - session->done});
  }
  auto step = std::make_shared<PrefillStep>();
  for (const scheduler::PrefillChunk& chunk : planner_.Plan(candidates)) {
    PrefillSession& session = *Find(chunk.id);
    const bool last = session.done + chunk.tokens == session.tokens();
    step->sequences.push_back(
        {std::span(session.generation.tokens).subspan(session.done, chunk.tokens), session.done, session.blocks, last});
    step->parts.push_back({chunk.id, &session, chunk.tokens, last, session.announced_blocks, 0});
    step->tokens += chunk.tokens;
    ++session.pins;
    if (last && session.hands_over) {
      session.announced_blocks = static_cast<uint32_t>(session.blocks.size());
      session.checksums += pages_.layers();
      session.pins += pages_.layers();
    }
  }
  return step;
}

void PrefillRuntime::MaybeStep() {
  if (stepping_) return;
  auto step = MakeStep();
  if (step->parts.empty()) return;
  stepping_ = true;
  wiring_.engine.Post([this, step] {
    RunStep(*step);
    wiring_.control.Post([this, step] { FinishStep(*step); });
  });
  std::vector<uint64_t> last;
  for (const PrefillPart& part : step->parts) {
    if (part.last) last.push_back(part.id);
  }
  for (const uint64_t id : last) {
    PrefillSession& session = *Find(id);  // pinned by the step
    if (session.hands_over && session.state == PrefillState::kComputing) StartHandoff(session);
  }
}

void PrefillRuntime::RunStep(PrefillStep& step) {
  LastChunkObserver observer(*this, step);
  const TimePoint begin = wiring_.engine.Now();
  step.status = wiring_.backend.Step(step.sequences, &observer);
  step.took = wiring_.engine.Now() - begin;
  if (!step.status.ok()) return;
  size_t row = 0;
  for (PrefillPart& part : step.parts) {
    if (!part.last) continue;
    const request::Generation& generation = part.session->generation;
    const auto generated = std::span(generation.tokens).subspan(generation.prompt_tokens);
    part.sampled = request::Sample(wiring_.backend.logits()[row++], generation, generated, scratch_);
  }
}

void PrefillRuntime::FinishStep(PrefillStep& step) {
  planner_.Measured(step.tokens, step.took);
  step_seconds_.Observe(ToSeconds(step.took));
  if (step.status.ok()) computed_tokens_.Add(step.tokens);
  for (const PrefillPart& part : step.parts) {
    PrefillSession& session = *Find(part.id);
    --session.pins;
    if (part.last && session.hands_over) {  // layers that never ran have no checksum task
      session.pins -= pages_.layers() - step.layers_done;
      session.checksums -= pages_.layers() - step.layers_done;
    }
    if (session.state == PrefillState::kEnded) {
      Reap(part.id);
    } else if (!step.status.ok()) {
      End(session, Internal("engine: " + step.status.message()), "failed");
    } else {
      ChunkDone(session, part.tokens);
      if (part.last) OnFirstToken(session, part.sampled);
    }
  }
  stepping_ = false;  // only now: none of the sequences above may enter a step before its chunk was counted
  MaybeStep();
  Changed();
}

void PrefillRuntime::ChunkDone(PrefillSession& session, uint32_t tokens) {
  session.done += tokens;
  PutFullBlocks(session);
  ChecksumBlocks(session, session.done / kv::kBlockTokens);
}

void PrefillRuntime::PutFullBlocks(PrefillSession& session) {
  if (!session.generation.cache_write || session.keys.empty()) return;
  for (; session.put_blocks < session.done / kv::kBlockTokens; ++session.put_blocks) {
    writer_.Put(session.keys.front(), session.keys[session.put_blocks], session.blocks[session.put_blocks]);
  }
}

void PrefillRuntime::ChecksumBlocks(PrefillSession& session, uint32_t to_block) {
  if (!session.hands_over || session.announced_blocks >= to_block) return;
  const uint32_t from_block = std::exchange(session.announced_blocks, to_block);
  ++session.pins;
  ++session.checksums;
  wiring_.checksum.Post([this, &session, id = session.id, from_block, to_block] {
    std::vector<peer::LayerBlock> blocks;
    for (uint32_t block = from_block; block < to_block; ++block) {
      for (uint32_t layer = 0; layer < pages_.layers(); ++layer) {
        blocks.push_back(Describe(pages_, session, layer, block));
      }
    }
    wiring_.control.Post([this, id, blocks = std::move(blocks)]() mutable { OnChecksums(id, std::move(blocks)); });
  });
}

void PrefillRuntime::OnChecksums(uint64_t id, std::vector<peer::LayerBlock> blocks) {
  PrefillSession& session = *Find(id);
  --session.pins;
  --session.checksums;
  if (session.state == PrefillState::kEnded) return Reap(id);
  if (session.handoff == nullptr) {
    session.layer_blocks.insert(session.layer_blocks.end(), blocks.begin(), blocks.end());
    return;
  }
  session.handoff->Announce(std::move(blocks));
  MaybeEndHandoff(session);
}

void PrefillRuntime::StartHandoff(PrefillSession& session) {
  const uint64_t id = session.id;
  PrefillHandoff::Events events;
  events.reserved = [this, id](peer::DecodeTarget target) { Find(id)->stream->Send(std::move(target)); };
  events.complete = [this, id] { End(*Find(id), OkStatus(), "complete"); };
  events.failed = [this, id](const Status& status) {
    Log(LogLevel::kWarning, "handoff_failed",
        {{"request_id", Find(id)->generation.request_id}, {"status", status.ToString()}});
    End(*Find(id), status, "failed");
  };
  events.attempt_failed = [this](const Status& status) { HandoffFailure(status.reason()).Add(); };
  session.handoff = std::make_unique<PrefillHandoff>(
      PrefillHandoffWiring{wiring_.control, wiring_.pick_dialer, wiring_.decode_balancers, wiring_.handoff_dialer},
      handoff_options_, session.generation, std::move(events));
  session.handoff->Announce(std::exchange(session.layer_blocks, {}));
  session.handoff->Start(session.excluded_decode, next_replica_++);
}

void PrefillRuntime::OnFirstToken(PrefillSession& session, request::TokenId token) {
  session.sampled = true;
  session.first_token = token;
  session.state = PrefillState::kHandingOver;
  const request::Generation& generation = session.generation;
  std::vector<request::TokenId> generated(generation.tokens.begin() + generation.prompt_tokens,
                                          generation.tokens.end());
  generated.push_back(token);
  const request::FinishReason finish = request::CheckFinish(generation, generated);
  session.stream->Send(peer::FirstToken{token, session.cached, finish});
  if (finish != request::FinishReason::kNone) return End(session, OkStatus(), "complete");
  MaybeEndHandoff(session);
}

void PrefillRuntime::MaybeEndHandoff(PrefillSession& session) {
  if (!session.sampled || session.checksums > 0 || !session.handoff || session.handoff_ended) return;
  session.handoff_ended = true;
  session.handoff->End({session.first_token, session.cached});
}

void PrefillRuntime::End(PrefillSession& session, const Status& status, const char* outcome) {
  Outcome(outcome).Add();
  if (session.stream) session.stream->Close(status);
  session.stream = nullptr;
  session.handoff = nullptr;
  std::erase(waiting_, session.id);
  session.state = PrefillState::kEnded;
  Reap(session.id);
}

void PrefillRuntime::Reap(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found->second->pins > 0) return;
  pool_.ReleaseAll(found->second->blocks);
  sessions_.erase(found);
  AdmitWaiting();
  Changed();
}

cluster::Load PrefillRuntime::load() const {
  cluster::Load load;
  load.draining = draining_;
  load.busy = stepping_;
  load.progress = wiring_.backend.progress();
  load.queued_requests = static_cast<uint32_t>(waiting_.size());
  for (const auto& [id, session] : sessions_) {
    if (session->state == PrefillState::kNew || session->state == PrefillState::kEnded) continue;
    load.queued_tokens += session->tokens() - session->done;
    if (!session->blocks.empty()) ++load.running;
  }
  load.free_blocks = pool_.free();
  load.tokens_per_second = planner_.tokens_per_second();
  return load;
}

void PrefillRuntime::Changed() {
  sessions_gauge_.Set(static_cast<double>(sessions_.size()));
  waiting_gauge_.Set(static_cast<double>(waiting_.size()));
  blocks_gauge_.Set(pool_.held());
  handoffs_gauge_.Set(static_cast<double>(std::count_if(
      sessions_.begin(), sessions_.end(), [](const auto& entry) { return entry.second->handoff != nullptr; })));
  if (on_load_change_) on_load_change_();
}

void PrefillRuntime::Tick() {
  const TimePoint now = wiring_.control.Now();
  const peer::Heartbeat heartbeat{wiring_.backend.progress(), stepping_};
  std::vector<uint64_t> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const uint64_t id : ids) {
    PrefillSession* session = Find(id);
    if (session == nullptr || session->state == PrefillState::kEnded) continue;
    if (session->state == PrefillState::kNew) {
      if (now - session->opened < options_.liveness.silence) continue;
      End(*session, {Code::kDeadlineExceeded, Reason::kDeadline, "no request came on the stream"}, "refused");
      continue;
    }
    session->stream->Send(heartbeat);
    if (session->handoff) session->handoff->Tick(now, heartbeat);
  }
  Changed();
  Start();
}

}  // namespace millrace::runtime
