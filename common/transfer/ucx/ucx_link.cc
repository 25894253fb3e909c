#include "common/transfer/ucx/ucx_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace millrace::transfer::ucx {
namespace {

constexpr size_t kCopyBytes = 1 << 20;  // copied in one Work()
constexpr size_t kMaxRegions = 4096;    // imported over one link

}  // namespace

StatusOr<std::unique_ptr<Link>> UcxLink::Connect(LinkWiring wiring, Address peer) {
  std::unique_ptr<UcxLink> link(new UcxLink(std::move(wiring), std::move(peer)));
  Status added;
  link->wiring_.reactor.Run([&] { added = link->wiring_.reactor.Add(link.get()); });
  MR_RETURN_IF_ERROR(added);
  return std::unique_ptr<Link>(std::move(link));
}

UcxLink::~UcxLink() {
  wiring_.reactor.Run([this] {
    wiring_.reactor.Remove(this);
    std::deque<PendingGet> copies = std::exchange(copies_, {});
    for (const PendingGet& get : copies) Complete(get.done, Cancelled("ucx: the link was destroyed"));
    lane_.reset();
  });
}

StatusOr<RemoteRegion> UcxLink::Import(const std::string& descriptor) {
  MR_ASSIGN_OR_RETURN(const RegionDescriptor region, DecodeRegion(descriptor));
  if (region.owner != peer_.id) return InvalidArgument("ucx: the region is not one of this link's peer");
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (regions_[i]->id == region.region) return static_cast<RemoteRegion>(i);
  }
  if (regions_.size() >= kMaxRegions) {
    return Status(Code::kResourceExhausted, "ucx: more than " + std::to_string(kMaxRegions) + " regions of one peer");
  }
  MR_ASSIGN_OR_RETURN(ImportedRegion reached, Reach(region));
  regions_.push_back(std::make_shared<const ImportedRegion>(std::move(reached)));
  return static_cast<RemoteRegion>(regions_.size() - 1);
}

// Where this process can reach the peer, best first.
std::vector<std::string> UcxLink::Sockets() const {
  std::vector<std::string> sockets;
  for (const std::string& socket : peer_.sockets) {
    if (!IsLoopbackSocket(socket)) {
      sockets.push_back(socket);
    } else if (peer_.host == wiring_.host) {
      sockets.insert(sockets.begin(), socket);
    }
  }
  return sockets;
}

// Called with mutex_ held.
StatusOr<UcxLink::ImportedRegion> UcxLink::Reach(const RegionDescriptor& descriptor) {
  ImportedRegion region{.id = descriptor.region, .size = descriptor.size};
  Status unmapped = Unavailable("ucx: the region is not in shared memory");
  if (!descriptor.domain.empty() && wiring_.shared != nullptr && peer_.host.boot == wiring_.host.boot) {
    const auto known =
        std::find_if(maps_.begin(), maps_.end(), [&](auto& map) { return map.first == descriptor.segment_nonce; });
    if (known != maps_.end()) {
      region.mapping = known->second;
    } else if (auto mapping = wiring_.shared->Map(descriptor); mapping.ok()) {
      region.mapping = *std::move(mapping);
      maps_.emplace_back(descriptor.segment_nonce, region.mapping);
    } else {
      unmapped = mapping.status();
    }
  }
  if (region.mapping != nullptr) {
    region.bytes = region.mapping->bytes() + descriptor.offset;
    lanes_.insert(descriptor.domain);
    return region;
  }
  if (wiring_.network == nullptr || Sockets().empty()) {
    return unmapped.Annotate(
        "no lane to the peer; allow a network lane on both sides, or place the memory with "
        "Allocate in a namespace shared with the peer");
  }
  return region;
}

StatusOr<std::shared_ptr<const UcxLink::ImportedRegion>> UcxLink::Find(RemoteRegion region, uint64_t offset,
                                                                       size_t size) const {
  std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(region);
  if (index >= regions_.size()) return InvalidArgument("ucx: the region was not imported over this link");
  const auto& found = regions_[index];
  if (offset > found->size || size > found->size - offset) {
    return Status(Code::kOutOfRange, "ucx: get of [" + std::to_string(offset) + ", +" + std::to_string(size) +
                                         ") from a region of " + std::to_string(found->size) + " bytes");
  }
  return found;
}

void UcxLink::Get(RemoteRegion region, uint64_t offset, std::span<std::byte> into, Completion done) {
  const bool room = pending_.fetch_add(1) < wiring_.max_pending;
  StatusOr<std::shared_ptr<const ImportedRegion>> found = Find(region, offset, into.size());
  Status refused = found.status();
  if (found.ok() && !room) {
    refused = Status(Code::kResourceExhausted, Reason::kOverloaded,
                     "ucx: more than " + std::to_string(wiring_.max_pending) + " gets pending on one link");
  }
  if (!refused.ok()) {
    wiring_.reactor.Post([this, done = std::move(done), refused = std::move(refused)] { Complete(done, refused); });
    return;
  }
  wiring_.reactor.Post(
      [this, get = PendingGet{*std::move(found), offset, into, std::move(done)}]() mutable { Begin(std::move(get)); });
}

void UcxLink::Begin(PendingGet get) {
  if (get.region->bytes == nullptr) return BeginOverNetwork(std::move(get));
  copies_.push_back(std::move(get));
  wiring_.reactor.Wake(this);
}

void UcxLink::BeginOverNetwork(PendingGet get) {
  if (lane_ == nullptr) {
    lane_ = std::make_unique<NetworkLane>(*wiring_.network, wiring_.reactor, peer_.id, Sockets());
    lane_->Open();
  }
  lane_->Get(get.region->id, get.offset, get.into, [this, done = std::move(get.done)](const Status& status) {
    if (status.ok() && !network_known_) LearnLanes();
    Complete(done, status);
  });
}

void UcxLink::LearnLanes() {
  network_known_ = true;
  std::lock_guard lock(mutex_);
  lanes_.insert(lane_->lanes().begin(), lane_->lanes().end());
}

void UcxLink::Complete(const Completion& done, const Status& status) {
  --pending_;
  done(status);
}

bool UcxLink::Work() {
  size_t budget = kCopyBytes;
  while (!copies_.empty() && budget > 0) {
    PendingGet& get = copies_.front();
    const size_t size = std::min(budget, get.into.size() - get.copied);
    if (size > 0) std::memcpy(get.into.data() + get.copied, get.region->bytes + get.offset + get.copied, size);
    get.copied += size;
    budget -= size;
    if (get.copied < get.into.size()) break;
    const Completion done = std::move(get.done);
    copies_.pop_front();
    Complete(done, OkStatus());
  }
  return !copies_.empty();
}

LinkInfo UcxLink::info() const {
  std::lock_guard lock(mutex_);
  const bool network = std::any_of(regions_.begin(), regions_.end(), [](auto& r) { return r->mapping == nullptr; });
  return {.transport = "ucx",
          .lanes = {lanes_.begin(), lanes_.end()},
          .same_host = peer_.host.boot == wiring_.host.boot,
          .error_mode = network ? "peer" : "none"};
}

}  // namespace millrace::transfer::ucx
