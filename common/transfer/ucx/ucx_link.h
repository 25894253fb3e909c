#pragma once
// A link of the UCX transport: reads mapped regions by copying, others through its network lane.

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/transfer/transport.h"
#include "common/transfer/ucx/network.h"
#include "common/transfer/ucx/network_lane.h"
#include "common/transfer/ucx/reactor.h"
#include "common/transfer/ucx/shared_memory.h"
#include "common/transfer/ucx/wire.h"

namespace millrace::transfer::ucx {

// What a link uses of its transport. `shared` and `network` are null when the transport has no such lanes.
struct LinkWiring {
  Reactor& reactor;
  SharedMemory* shared = nullptr;
  const NetworkContext* network = nullptr;
  HostIdentity host;
  uint32_t max_pending = 0;
};

class UcxLink final : public Link, private Pollable {
 public:
  static StatusOr<std::unique_ptr<Link>> Connect(LinkWiring wiring, Address peer);
  ~UcxLink() override;

  StatusOr<RemoteRegion> Import(const std::string& descriptor) override;
  void Get(RemoteRegion region, uint64_t offset, std::span<std::byte> into, Completion done) override;
  LinkInfo info() const override;
  uint32_t max_pending() const override { return wiring_.max_pending; }

 private:
  struct ImportedRegion {
    uint64_t id = 0;
    uint64_t size = 0;
    std::shared_ptr<SharedMapping> mapping;  // null: over the network
    const std::byte* bytes = nullptr;        // of the region, when mapped
  };
  struct PendingGet {
    std::shared_ptr<const ImportedRegion> region;
    uint64_t offset = 0;
    std::span<std::byte> into;
    Completion done;
    size_t copied = 0;
  };

  UcxLink(LinkWiring wiring, Address peer) : wiring_(std::move(wiring)), peer_(std::move(peer)) {}
  std::vector<std::string> Sockets() const;
  StatusOr<ImportedRegion> Reach(const RegionDescriptor& descriptor);
  StatusOr<std::shared_ptr<const ImportedRegion>> Find(RemoteRegion region, uint64_t offset, size_t size) const;
  void Begin(PendingGet get);
  void BeginOverNetwork(PendingGet get);
  void LearnLanes();
  void Complete(const Completion& done, const Status& status);

  // Copies of mapped regions.
  bool Work() override;
  int fd() const override { return -1; }
  bool Arm() override { return copies_.empty(); }

  const LinkWiring wiring_;
  const Address peer_;
  std::atomic<uint32_t> pending_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const ImportedRegion>> regions_;             // guarded by mutex_
  std::vector<std::pair<uint64_t, std::shared_ptr<SharedMapping>>> maps_;  // by segment nonce; guarded by mutex_
  std::set<std::string> lanes_;                                            // guarded by mutex_
  std::deque<PendingGet> copies_;                                          // on the reactor's thread
  std::unique_ptr<NetworkLane> lane_;                                      // on the reactor's thread
  bool network_known_ = false;                                             // on the reactor's thread
};

}  // namespace millrace::transfer::ucx
