#include "common/transfer/ucx/ucx_transport.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/random.h"
#include "common/transfer/anonymous_memory.h"
#include "common/transfer/ucx/network.h"
#include "common/transfer/ucx/reactor.h"
#include "common/transfer/ucx/server.h"
#include "common/transfer/ucx/shared_memory.h"
#include "common/transfer/ucx/ucx_link.h"
#include "common/transfer/ucx/wire.h"

namespace millrace::transfer::ucx {
namespace {

constexpr size_t kMaxAddressBytes = 4096;

struct Lanes {
  std::vector<std::string> shared;  // memory domains, in order of preference
  std::string network;              // UCX_TLS of the network context; empty = none
};

void AddUnique(std::vector<std::string>& list, std::string_view word) {
  for (const std::string& known : list) {
    if (known == word) return;
  }
  list.emplace_back(word);
}

// Splits a list of UCX transports into those that map memory and those that carry messages.
StatusOr<Lanes> ParseLanes(std::string_view text) {
  Lanes lanes;
  if (text.empty()) text = "all";
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (word.empty()) continue;
    if (word.starts_with('^')) {
      return InvalidArgument("ucx: lanes '" + std::string(word) + "': name the lanes to use, not those to leave out")
          .WithParam("lanes");
    }
    const bool all = word == "all";
    // Not CMA: UCX 1.18 aborts the reader's process when the owner is gone (docs/design/kv-transport.md).
    if (word == "self" || word == "cma" || word == "knem" || word == "xpmem") continue;
    const bool shm = word == "shm" || word == "sm" || word == "mm";
    if (all || shm || word == "sysv") AddUnique(lanes.shared, "sysv");
    if (all || shm || word == "posix") AddUnique(lanes.shared, "posix");
    if (all) lanes.network = "^sm,self";
    if (!all && !shm && word != "sysv" && word != "posix") {
      lanes.network += (lanes.network.empty() ? "" : ",") + std::string(word);
    }
  }
  if (lanes.shared.empty() && lanes.network.empty()) {
    return InvalidArgument("ucx: the lanes name neither shared memory (sysv, posix) nor a network (tcp, rc, ...)")
        .WithParam("lanes");
  }
  return lanes;
}

// The segments of this process by address, so that Register knows memory that peers can map.
class SegmentTable {
 public:
  void Add(SharedSegment* segment) {
    std::lock_guard lock(mutex_);
    segments_[segment->bytes().data()] = segment;
  }
  void Remove(SharedSegment* segment) {
    std::lock_guard lock(mutex_);
    segments_.erase(segment->bytes().data());
  }
  void Describe(std::span<std::byte> memory, RegionDescriptor& region) const {
    std::lock_guard lock(mutex_);
    auto it = segments_.upper_bound(memory.data());
    if (it == segments_.begin()) return;
    const std::span<std::byte> bytes = (--it)->second->bytes();
    if (memory.data() + memory.size() > bytes.data() + bytes.size()) return;
    it->second->Describe(region);
    region.offset = static_cast<uint64_t>(memory.data() - bytes.data());
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::byte*, SharedSegment*> segments_;  // guarded by mutex_
};

class SegmentMemory final : public Memory {
 public:
  SegmentMemory(SegmentTable& table, std::unique_ptr<SharedSegment> segment)
      : table_(table), segment_(std::move(segment)) {
    table_.Add(segment_.get());
  }
  ~SegmentMemory() override { table_.Remove(segment_.get()); }
  std::span<std::byte> bytes() override { return segment_->bytes(); }

 private:
  SegmentTable& table_;
  const std::unique_ptr<SharedSegment> segment_;
};

class UcxRegion final : public Region {
 public:
  UcxRegion(Server* server, uint64_t id, std::string descriptor)
      : server_(server), id_(id), descriptor_(std::move(descriptor)) {}
  ~UcxRegion() override {
    if (server_ != nullptr) server_->Withdraw(id_);
  }
  const std::string& descriptor() const override { return descriptor_; }

 private:
  Server* const server_;  // null without network lanes
  const uint64_t id_;
  const std::string descriptor_;
};

class UcxTransport final : public Transport {
 public:
  static StatusOr<std::unique_ptr<Transport>> Make(const TransportOptions& options) {
    std::string text = options.lanes;
    if (const char* tls = std::getenv("UCX_TLS"); text.empty() && tls != nullptr) text = tls;
    MR_ASSIGN_OR_RETURN(const Lanes lanes, ParseLanes(text));
    SilenceUcx();
    if (options.max_pending == 0) return InvalidArgument("ucx: max_pending is 0").WithParam("max_pending");
    std::unique_ptr<UcxTransport> transport(new UcxTransport(options.max_pending));
    const bool loopback = options.devices.empty() && options.local_only;
    MR_RETURN_IF_ERROR(transport->Start(lanes, loopback ? "lo" : options.devices));
    return std::unique_ptr<Transport>(std::move(transport));
  }

  ~UcxTransport() override {
    if (reactor_ != nullptr) reactor_->Run([this] { server_.reset(); });
    reactor_.reset();
  }

  const std::string& address() const override { return address_; }

  StatusOr<std::unique_ptr<Memory>> Allocate(size_t size) override {
    if (size == 0) return InvalidArgument("ucx: Allocate of 0 bytes");
    MR_RETURN_IF_ERROR(CheckRoom(size));
    if (shared_ != nullptr) {
      if (auto segment = shared_->Allocate(size); segment.ok()) {
        return std::unique_ptr<Memory>(std::make_unique<SegmentMemory>(segments_, *std::move(segment)));
      } else if (server_ == nullptr) {
        return segment.status();
      } else {
        Log(LogLevel::kWarning, "transfer_without_shared_memory",
            {{"bytes", size},
             {"reason", segment.status().message()},
             {"effect",
              "peers of this machine read it over the network lane, slower: raise kernel.shmmax and shmall, "
              "or give /dev/shm that many bytes"}});
      }
    }
    return MakeAnonymousMemory(size);
  }

  StatusOr<std::unique_ptr<Region>> Register(std::span<std::byte> memory) override {
    if (memory.empty()) return InvalidArgument("ucx: Register of 0 bytes");
    RegionDescriptor region{.owner = id_, .region = RandomSeed(), .size = memory.size()};
    segments_.Describe(memory, region);
    if (region.domain.empty() && server_ == nullptr) {
      return FailedPrecondition("ucx: no network lane, so only memory from Allocate can be registered");
    }
    if (server_ != nullptr) server_->Offer(region.region, memory);
    return std::unique_ptr<Region>(std::make_unique<UcxRegion>(server_.get(), region.region, EncodeRegion(region)));
  }

  StatusOr<std::unique_ptr<Link>> Connect(const std::string& peer_address) override {
    MR_ASSIGN_OR_RETURN(Address peer, DecodeAddress(peer_address));
    return UcxLink::Connect({.reactor = *reactor_,
                             .shared = shared_.get(),
                             .network = network_.get(),
                             .host = host_,
                             .max_pending = max_pending_},
                            std::move(peer));
  }

 private:
  explicit UcxTransport(uint32_t max_pending) : max_pending_(max_pending), id_(NewTransportId()), host_(ThisHost()) {}

  Status Start(const Lanes& lanes, const std::string& devices) {
    Address address{.id = id_, .host = host_, .sockets = {}};
    if (!lanes.network.empty()) {
      MR_ASSIGN_OR_RETURN(network_, NetworkContext::Open(lanes.network, devices));
    }
    shared_ = OpenSharedMemory(lanes.shared);
    if (shared_ == nullptr && network_ == nullptr) {
      return Unavailable("ucx: this machine has no shared memory lane and no network lane is allowed");
    }
    MR_ASSIGN_OR_RETURN(reactor_, Reactor::Start());
    if (network_ != nullptr) {
      Status started;
      reactor_->Run([&] {
        auto server = Server::Start(*network_, devices, *reactor_, id_);
        started = server.status();
        if (server.ok()) server_ = *std::move(server);
      });
      MR_RETURN_IF_ERROR(started);
      address.sockets = server_->sockets();
    }
    address_ = EncodeAddress(address);
    if (address_.size() > kMaxAddressBytes) {
      return InvalidArgument("ucx: this machine's address has " + std::to_string(address_.size()) +
                             " bytes; choose fewer network devices")
          .WithParam("devices");
    }
    return OkStatus();
  }

  const uint32_t max_pending_;
  const TransportId id_;
  const HostIdentity host_;
  std::string address_;
  SegmentTable segments_;
  std::unique_ptr<SharedMemory> shared_;
  std::unique_ptr<NetworkContext> network_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<Server> server_;  // on the reactor's thread
};

}  // namespace

StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const TransportOptions& options) {
  return UcxTransport::Make(options);
}

}  // namespace millrace::transfer::ucx
