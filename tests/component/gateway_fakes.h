#pragma once
// A scripted cluster for tests of the gateway: balancers, prefill and decode workers whose tokens are a function of
// seed and position, and that die, stall, evict, repeat or skip where a test says so.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/gateway/completion.h"
#include "common/peer/protocols.h"
#include "common/recipe/model_recipe.h"
#include "tests/support/local_network.h"

namespace millrace::fakes {

using request::TokenId;

constexpr TokenId kEos = 256;
constexpr uint32_t kVocabulary = 300;
constexpr const char* kModel = "test-model";
constexpr const char* kModelDigest = "file";

// One id a byte; id 256 is a control token.
class ByteTokenizer final : public recipe::Tokenizer {
 public:
  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) bytes_.push_back(std::string(1, static_cast<char>(i)));
  }
  std::vector<TokenId> Encode(std::string_view text, recipe::SpecialText) const override {
    std::vector<TokenId> ids;
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::vector<TokenId> Encode(std::span<const recipe::Segment> segments) const override {
    std::vector<TokenId> ids;
    for (const auto& segment : segments) {
      auto more = Encode(segment.text, recipe::SpecialText::kIsText);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ids;
  }
  std::string Decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (TokenId id : ids) text += TextBytes(id);
    return text;
  }
  std::string_view TextBytes(TokenId id) const override {
    return id < 256 ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
  }
  std::string_view TokenBytes(TokenId id) const override { return TextBytes(id); }
  bool IsControl(TokenId id) const override { return id >= 256; }
  std::optional<TokenId> Find(std::string_view) const override { return std::nullopt; }
  uint32_t vocab_size() const override { return kVocabulary; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return kEos; }
  bool adds_bos() const override { return false; }
  bool adds_eos() const override { return false; }
  const std::vector<TokenId>& stop_ids() const override { return stops_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenId> stops_{kEos};
};

class ByteRecipe final : public recipe::ModelRecipe {
 public:
  std::shared_ptr<const recipe::Tokenizer> tokenizer() const override { return tokenizer_; }
  const std::vector<TokenId>& stop_ids() const override { return tokenizer_->stop_ids(); }
  StatusOr<std::vector<TokenId>> RenderChat(const recipe::Conversation& conversation) const override {
    std::string text;
    for (const auto& message : conversation.messages) {
      if (message.name == "nobody") return InvalidArgument("the template knows no such name");
      text += message.role + ":";
      for (const auto& part : message.content.value_or(std::vector<std::string>{})) text += part;
      text += "\n";
    }
    return EncodeText(text);
  }
  std::vector<TokenId> EncodeText(std::string_view text) const override {
    return tokenizer_->Encode(text, recipe::SpecialText::kParse);
  }
  bool has_chat_template() const override { return true; }

 private:
  std::shared_ptr<const ByteTokenizer> tokenizer_ = std::make_shared<ByteTokenizer>();
};

// The model: what the workers sample at an absolute position. Tests may put a text in its place.
struct Oracle {
  std::string text;  // token i is text[i], then EOS; empty = letters drawn by seed and position
  TokenId At(const request::Generation& generation, uint32_t index) const {
    if (!text.empty()) return index < text.size() ? static_cast<unsigned char>(text[index]) : kEos;
    uint64_t x = generation.sampling.seed * 1000003 + (generation.prompt_tokens + index) * 7919;
    return static_cast<TokenId>('a' + (x ^ (x >> 7)) % 26);
  }
  std::vector<TokenId> Ids(const request::Generation& generation, uint32_t count) const {
    std::vector<TokenId> ids;
    for (uint32_t i = 0; i < count; ++i) ids.push_back(At(generation, i));
    return ids;
  }
};

enum class Fault : uint8_t {
  kNone,
  kClose,   // with `status`
  kSilent,  // says nothing more, the stream stays open
  kStuck,   // heartbeats go on: busy, no progress
};

// Where on its way a prefill worker fails.
enum class PrefillPoint : uint8_t { kNever, kArrival, kAccepted, kTarget, kFirstToken };

struct World {
  World(Executor& cluster, support::LocalNetwork& net) : executor(cluster), network(net) {}
  Executor& executor;
  support::LocalNetwork& network;
  Oracle oracle;
  std::map<std::string, request::Generation> sessions;
  uint64_t next_session = 1;
};

// A server stream with heartbeats, kept until it ends.
template <class Protocol>
class Served {
 public:
  Served(World& world, std::unique_ptr<peer::ServerStream<Protocol>> stream)
      : world_(world), stream_(std::move(stream)) {
    Beat();
  }
  ~Served() { world_.executor.Cancel(beat_); }
  template <class Message>
  void Send(Message message) {
    if (!silent) stream_->Send(typename Protocol::Down(std::move(message)));
  }
  void Close(Status status) { stream_->Close(std::move(status)); }
  void Progress() { ++heartbeat.progress; }

  peer::Heartbeat heartbeat;
  bool silent = false;

 private:
  void Beat() {
    Send(heartbeat);
    beat_ = world_.executor.PostAfter(Milliseconds(250), [this] { Beat(); });
  }
  World& world_;
  std::unique_ptr<peer::ServerStream<Protocol>> stream_;
  TimerId beat_ = TimerId::kNone;
};

class FakeDecode final : public peer::Service<peer::DecodeProtocol> {
 public:
  using P = peer::DecodeProtocol;
  FakeDecode(World& world, std::string name, cluster::Incarnation id)
      : address(std::move(name)), incarnation(id), world_(world) {
    world_.network.Serve<P>(address, world_.executor, *this);
  }

  peer::StreamHandler<P::Up> Accept(std::unique_ptr<peer::ServerStream<P>> stream) override {
    ++attached;
    uint64_t id = next_++;
    running_[id].served = std::make_unique<Served<P>>(world_, std::move(stream));
    peer::StreamHandler<P::Up> handler;
    handler.on_message = [this, id](P::Up up) { OnAttach(id, std::get<peer::Attach>(up)); };
    handler.on_closed = [this, id](const Status&) { Drop(id); };
    return handler;
  }
  size_t open() const { return running_.size(); }

  const std::string address;
  const cluster::Incarnation incarnation;
  Fault fault = Fault::kNone;
  uint32_t fault_after = 0;  // tokens sent on a stream before it
  uint32_t faults_left = 1000;
  Status status{Code::kUnavailable, Reason::kPeerLost, "decode died"};
  uint32_t chunk = 1;    // tokens a message
  bool repeats = false;  // sends each message twice, and old tokens again
  bool skips = false;    // leaves out a token
  Duration pace = Milliseconds(10);
  uint32_t attached = 0;

 private:
  struct Running {
    std::unique_ptr<Served<P>> served;
    request::Generation generation;
    uint32_t next = 0;
    uint32_t sent = 0;
    TimerId timer = TimerId::kNone;
  };

  void OnAttach(uint64_t id, const peer::Attach& attach) {
    Running& running = running_.at(id);
    auto it = world_.sessions.find(attach.session);
    if (it == world_.sessions.end() || attach.incarnation != incarnation) {
      running.served->Close(NotFound("no such session"));
      return Drop(id);
    }
    running.generation = it->second;
    running.next = attach.from;
    running.served->heartbeat.busy = true;
    Schedule(id);
  }
  void Schedule(uint64_t id) {
    running_.at(id).timer = world_.executor.PostAfter(pace, [this, id] { Produce(id); });
  }
  void Produce(uint64_t id) {
    Running& running = running_.at(id);
    if (fault != Fault::kNone && running.sent >= fault_after && faults_left > 0) return Fail(id);
    peer::TokenChunk out{running.next, {}};
    if (repeats && running.next >= 2) {
      out.first_index -= 2;
      for (uint32_t i = 2; i > 0; --i) out.tokens.push_back(world_.oracle.At(running.generation, running.next - i));
    }
    if (skips && running.sent == 3) {
      ++running.next;
      ++out.first_index;
    }
    request::FinishReason reason = request::FinishReason::kNone;
    for (uint32_t i = 0; i < chunk && reason == request::FinishReason::kNone; ++i) {
      std::vector<TokenId> all = world_.oracle.Ids(running.generation, running.next + 1);
      out.tokens.push_back(all.back());
      ++running.next;
      ++running.sent;
      reason = request::CheckFinish(running.generation, all);
    }
    running.served->Progress();
    running.served->Send(out);
    if (repeats) running.served->Send(out);
    if (reason == request::FinishReason::kNone) return Schedule(id);
    running.served->Send(peer::DecodeFinished{reason});
    running.served->Close(OkStatus());
    Drop(id);
  }
  void Fail(uint64_t id) {
    --faults_left;
    Running& running = running_.at(id);
    if (fault == Fault::kSilent) running.served->silent = true;
    if (fault != Fault::kClose) return;
    running.served->Close(status);
    Drop(id);
  }
  void Drop(uint64_t id) {
    auto it = running_.find(id);
    if (it == running_.end()) return;
    world_.executor.Cancel(it->second.timer);
    running_.erase(it);
  }

  World& world_;
  std::map<uint64_t, Running> running_;
  uint64_t next_ = 1;
};

class FakePrefill final : public peer::Service<peer::PrefillProtocol> {
 public:
  using P = peer::PrefillProtocol;
  FakePrefill(World& world, std::string name, cluster::Incarnation id, std::vector<FakeDecode*> decodes)
      : address(std::move(name)), incarnation(id), world_(world), decodes_(std::move(decodes)) {
    world_.network.Serve<P>(address, world_.executor, *this);
  }

  peer::StreamHandler<P::Up> Accept(std::unique_ptr<peer::ServerStream<P>> stream) override {
    uint64_t id = next_++;
    running_[id].served = std::make_unique<Served<P>>(world_, std::move(stream));
    peer::StreamHandler<P::Up> handler;
    handler.on_message = [this, id](P::Up up) {
      requests.push_back(std::get<peer::PrefillRequest>(up));
      running_.at(id).request = requests.back();
      running_.at(id).served->heartbeat.busy = true;
      Next(id, PrefillPoint::kArrival);
    };
    handler.on_closed = [this, id](const Status&) { Drop(id); };
    return handler;
  }
  size_t open() const { return running_.size(); }

  const std::string address;
  const cluster::Incarnation incarnation;
  PrefillPoint fault_point = PrefillPoint::kNever;
  Fault fault = Fault::kClose;
  uint32_t faults_left = 1000;
  Status status{Code::kUnavailable, Reason::kPeerLost, "prefill died"};
  uint32_t cached_tokens = 0;
  Duration pace = Milliseconds(5);
  std::vector<peer::PrefillRequest> requests;

 private:
  struct Running {
    std::unique_ptr<Served<P>> served;
    peer::PrefillRequest request;
    TimerId timer = TimerId::kNone;
  };

  // Does what comes after `point` was reached.
  void Next(uint64_t id, PrefillPoint point) {
    if (fault_point == point && faults_left > 0) return Fail(id);
    running_.at(id).timer = world_.executor.PostAfter(pace, [this, id, point] { Advance(id, point); });
  }
  void Advance(uint64_t id, PrefillPoint point) {
    Running& running = running_.at(id);
    running.served->Progress();
    const request::Generation& generation = running.request.generation;
    if (point == PrefillPoint::kArrival) {
      running.served->Send(peer::PrefillAccepted{});
      return Next(id, PrefillPoint::kAccepted);
    }
    if (point == PrefillPoint::kAccepted) {
      FakeDecode* decode = ChooseDecode(running.request.excluded_decode);
      if (decode == nullptr) {
        running.served->Close({Code::kUnavailable, Reason::kNoInstance, "no decode instance"});
        return Drop(id);
      }
      std::string session = "s" + std::to_string(world_.next_session++);
      world_.sessions[session] = generation;
      running.served->Send(peer::DecodeTarget{decode->address, decode->incarnation, session});
      return Next(id, PrefillPoint::kTarget);
    }
    if (point == PrefillPoint::kTarget) {
      auto index = static_cast<uint32_t>(generation.tokens.size()) - generation.prompt_tokens;
      std::vector<TokenId> all = world_.oracle.Ids(generation, index + 1);
      running.served->Send(peer::FirstToken{all.back(), cached_tokens, request::CheckFinish(generation, all)});
      return Next(id, PrefillPoint::kFirstToken);
    }
    running.served->Close(OkStatus());
    Drop(id);
  }
  FakeDecode* ChooseDecode(const std::vector<cluster::Incarnation>& excluded) const {
    for (FakeDecode* decode : decodes_) {
      if (std::find(excluded.begin(), excluded.end(), decode->incarnation) == excluded.end()) return decode;
    }
    return nullptr;
  }
  void Fail(uint64_t id) {
    --faults_left;
    Running& running = running_.at(id);
    if (fault == Fault::kSilent) running.served->silent = true;
    if (fault != Fault::kClose) return;
    running.served->Close(status);
    Drop(id);
  }
  void Drop(uint64_t id) {
    auto it = running_.find(id);
    if (it == running_.end()) return;
    world_.executor.Cancel(it->second.timer);
    running_.erase(it);
  }

  World& world_;
  std::vector<FakeDecode*> decodes_;
  std::map<uint64_t, Running> running_;
  uint64_t next_ = 1;
};

// One replica of a balancer: Pick (prefill only) and Watch.
class FakeBalancer final : public peer::Service<peer::PickProtocol>, public peer::Service<peer::WatchProtocol> {
 public:
  FakeBalancer(World& world, std::string name) : address(std::move(name)), world_(world) {
    world_.network.Serve<peer::PickProtocol>(address, world_.executor, *this);
    world_.network.Serve<peer::WatchProtocol>(address, world_.executor, *this);
  }

  peer::StreamHandler<peer::PickProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::PickProtocol>> stream) override {
    uint64_t id = next_++;
    picks_[id] = std::make_unique<Served<peer::PickProtocol>>(world_, std::move(stream));
    peer::StreamHandler<peer::PickProtocol::Up> handler;
    handler.on_message = [this, id](peer::PickProtocol::Up up) { OnPick(id, std::get<peer::PickRequest>(up)); };
    handler.on_closed = [this, id](const Status&) { picks_.erase(id); };
    return handler;
  }
  peer::StreamHandler<peer::WatchProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::WatchProtocol>> stream) override {
    uint64_t id = next_++;
    auto& watch = watches_[id];
    watch = std::make_unique<Served<peer::WatchProtocol>>(world_, std::move(stream));
    watch->Send(state);
    peer::StreamHandler<peer::WatchProtocol::Up> handler;
    handler.on_closed = [this, id](const Status&) { watches_.erase(id); };
    return handler;
  }
  void Publish(peer::PoolState newer) {
    state = std::move(newer);
    for (auto& [id, watch] : watches_) watch->Send(state);
  }
  size_t open_picks() const { return picks_.size(); }

  const std::string address;
  peer::PoolState state{{{{kModel, "layout", 1000, kModelDigest}, 1}}, {}};
  std::vector<FakePrefill*> prefills;
  bool silent_picks = false;  // takes them and never answers
  std::optional<Status> shed;
  std::vector<peer::PickRequest> picks;

 private:
  void OnPick(uint64_t id, const peer::PickRequest& pick) {
    picks.push_back(pick);
    auto& served = *picks_.at(id);
    if (silent_picks) {
      served.silent = true;
      return;
    }
    Status end = shed.value_or(Status(Code::kUnavailable, Reason::kNoInstance, "no prefill instance"));
    for (FakePrefill* prefill : prefills) {
      bool excluded =
          std::find(pick.excluded.begin(), pick.excluded.end(), prefill->incarnation) != pick.excluded.end();
      if (excluded || shed) continue;
      served.Send(peer::Route{prefill->address, prefill->incarnation, prefill->address});
      end = OkStatus();
      break;
    }
    served.Close(std::move(end));
    picks_.erase(id);
  }

  World& world_;
  std::map<uint64_t, std::unique_ptr<Served<peer::PickProtocol>>> picks_;
  std::map<uint64_t, std::unique_ptr<Served<peer::WatchProtocol>>> watches_;
  uint64_t next_ = 1;
};

// What a client saw of one request.
class RecordingSink final : public gateway::CompletionSink {
 public:
  void OnAccepted(gateway::Accepted a) override {
    ++accepts;
    accepted = std::move(a);
  }
  void OnDelta(gateway::Delta delta) override {
    late_events += ends > 0 || accepts == 0;
    text += delta.text;
    ids.insert(ids.end(), delta.ids.begin(), delta.ids.end());
    if (on_delta) on_delta();
  }
  void OnFinished(gateway::Finished f) override {
    ++ends;
    finished = f;
  }
  void OnFailed(Status status) override {
    ++ends;
    failed = std::move(status);
  }

  int accepts = 0;
  int ends = 0;
  int late_events = 0;
  gateway::Accepted accepted;
  gateway::Finished finished;
  Status failed;
  std::string text;
  std::vector<TokenId> ids;
  std::function<void()> on_delta;
};

}  // namespace millrace::fakes
