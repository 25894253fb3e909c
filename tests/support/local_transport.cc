#include "tests/support/local_transport.h"

#include <cstring>
#include <utility>
#include <vector>

namespace millrace::support {

struct PendingGet {
  uint64_t link = 0;
  std::string source;
  uint64_t region = 0;
  uint64_t offset = 0;
  std::span<std::byte> into;
  transfer::Completion done;
};

struct LocalFabricState {
  explicit LocalFabricState(Executor& runs) : executor(runs) {}

  void Complete(uint64_t get, const Status& status) {
    const auto found = gets.find(get);
    if (found == gets.end()) return;
    const transfer::Completion done = std::move(found->second.done);
    gets.erase(found);
    done(status);
  }

  void Run(uint64_t id) {
    const auto found = gets.find(id);
    if (found == gets.end() || held.contains(found->second.source)) return;
    const PendingGet& get = found->second;
    const auto region = regions.find(get.region);
    if (fail > 0) {
      --fail;
      return Complete(id, {Code::kUnavailable, Reason::kPeerLost, "told to fail"});
    }
    if (region == regions.end()) return Complete(id, NotFound("the region is gone"));
    const size_t size = region->second.size();
    if (get.offset > size || get.into.size() > size - get.offset) {
      return Complete(id, {Code::kOutOfRange, "beyond the region"});
    }
    std::memcpy(get.into.data(), region->second.data() + get.offset, get.into.size());
    if (corrupt > 0) {
      --corrupt;
      get.into[get.into.size() / 2] ^= std::byte{0x10};
    }
    Complete(id, OkStatus());
  }

  Executor& executor;
  std::map<uint64_t, PendingGet> gets;
  std::map<uint64_t, std::span<std::byte>> regions;
  std::set<std::string> held;
  uint32_t corrupt = 0;
  uint32_t fail = 0;
  uint32_t links = 0;
  uint64_t next_id = 1;
  uint64_t begun = 0;
};

namespace {

class LocalRegion final : public transfer::Region {
 public:
  LocalRegion(std::shared_ptr<LocalFabricState> state, std::span<std::byte> memory)
      : state_(std::move(state)), id_(state_->next_id++), descriptor_(std::to_string(id_)) {
    state_->regions[id_] = memory;
  }
  ~LocalRegion() override { state_->regions.erase(id_); }
  const std::string& descriptor() const override { return descriptor_; }

 private:
  std::shared_ptr<LocalFabricState> state_;
  const uint64_t id_;
  const std::string descriptor_;
};

class LocalMemory final : public transfer::Memory {
 public:
  explicit LocalMemory(size_t size) : bytes_(size) {}
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class LocalLink final : public transfer::Link {
 public:
  LocalLink(std::shared_ptr<LocalFabricState> state, std::string source)
      : state_(std::move(state)), id_(state_->next_id++), source_(std::move(source)) {
    ++state_->links;
  }
  ~LocalLink() override {
    std::vector<uint64_t> mine;
    for (const auto& [id, get] : state_->gets) {
      if (get.link == id_) mine.push_back(id);
    }
    for (const uint64_t id : mine) state_->Complete(id, Cancelled("the link was destroyed"));
    --state_->links;
  }
  StatusOr<transfer::RemoteRegion> Import(const std::string& descriptor) override {
    for (const auto& [id, memory] : state_->regions) {
      if (std::to_string(id) == descriptor) return transfer::RemoteRegion{static_cast<uint32_t>(id)};
    }
    return InvalidArgument("no such region");
  }
  void Get(transfer::RemoteRegion region, uint64_t offset, std::span<std::byte> into,
           transfer::Completion done) override {
    const uint64_t id = state_->next_id++;
    ++state_->begun;
    state_->gets[id] = {id_, source_, static_cast<uint64_t>(region), offset, into, std::move(done)};
    state_->executor.Post([state = state_, id] { state->Run(id); });
  }
  transfer::LinkInfo info() const override { return {"local", {}, true, "none"}; }
  uint32_t max_pending() const override { return 256; }

 private:
  std::shared_ptr<LocalFabricState> state_;
  const uint64_t id_;
  const std::string source_;
};

class LocalTransport final : public transfer::Transport {
 public:
  LocalTransport(std::shared_ptr<LocalFabricState> state, std::string name)
      : state_(std::move(state)), name_(std::move(name)) {}
  const std::string& address() const override { return name_; }
  StatusOr<std::unique_ptr<transfer::Memory>> Allocate(size_t size) override {
    return std::unique_ptr<transfer::Memory>(std::make_unique<LocalMemory>(size));
  }
  StatusOr<std::unique_ptr<transfer::Region>> Register(std::span<std::byte> memory) override {
    return std::unique_ptr<transfer::Region>(std::make_unique<LocalRegion>(state_, memory));
  }
  StatusOr<std::unique_ptr<transfer::Link>> Connect(const std::string& peer_address) override {
    if (peer_address.empty()) return InvalidArgument("transport address: empty");
    return std::unique_ptr<transfer::Link>(std::make_unique<LocalLink>(state_, peer_address));
  }

 private:
  std::shared_ptr<LocalFabricState> state_;
  const std::string name_;
};

}  // namespace

LocalFabric::LocalFabric(Executor& executor) : state_(std::make_shared<LocalFabricState>(executor)) {}
LocalFabric::~LocalFabric() = default;

std::unique_ptr<transfer::Transport> LocalFabric::MakeTransport(const std::string& name) {
  return std::make_unique<LocalTransport>(state_, name);
}

void LocalFabric::Hold(const std::string& source) { state_->held.insert(source); }

void LocalFabric::Release(const std::string& source) {
  state_->held.erase(source);
  for (const auto& [id, get] : state_->gets) {
    if (get.source == source) state_->executor.Post([state = state_, id = id] { state->Run(id); });
  }
}

void LocalFabric::CorruptNext(uint32_t gets) { state_->corrupt = gets; }
void LocalFabric::FailNext(uint32_t gets) { state_->fail = gets; }
uint64_t LocalFabric::gets() const { return state_->begun; }
uint64_t LocalFabric::pending() const { return state_->gets.size(); }
uint32_t LocalFabric::links() const { return state_->links; }

}  // namespace millrace::support
