#include "common/runtime/decode_links.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"

namespace millrace::runtime {

PeerLink::PeerLink(PullExecutors executors, std::unique_ptr<transfer::Link> link, uint32_t max_pulls)
    : executors_(executors),
      max_pulls_(std::max(1u, std::min(max_pulls, link->max_pending()))),
      link_(std::move(link)) {}

StatusOr<transfer::RemoteRegion> PeerLink::Import(const std::string& descriptor) {
  const auto known = regions_.find(descriptor);
  if (known != regions_.end()) return known->second;
  MR_ASSIGN_OR_RETURN(const transfer::RemoteRegion region, link_->Import(descriptor));
  regions_.emplace(descriptor, region);
  return region;
}

void PeerLink::Start(Pull pull) {
  queue_.push_back(std::move(pull));
  Pump();
}

uint32_t PeerLink::Drop(uint64_t owner) {
  return static_cast<uint32_t>(std::erase_if(queue_, [owner](const Pull& pull) { return pull.owner == owner; }));
}

void PeerLink::Pump() {
  while (!queue_.empty() && (running_ < max_pulls_ || ending_)) {
    auto pull = std::make_shared<Pull>(std::move(queue_.front()));
    queue_.pop_front();
    ++running_;
    // The link's thread must not wait, so bytes are checked elsewhere and only the result comes back here.
    auto completed = [this, pull](Status status) {
      executors_.checksum.Post([this, pull, status = std::move(status)]() mutable {
        if (status.ok() && Crc32c(pull->into.data(), pull->into.size()) != pull->crc32c) {
          status = {Code::kDataLoss, Reason::kKvCorrupt,
                    "checksum refused " + std::to_string(pull->into.size()) + " bytes of KV"};
        }
        executors_.control.Post([this, pull, status = std::move(status)] { Finished(*pull, status); });
      });
    };
    if (ending_) {
      completed({Code::kUnavailable, Reason::kPeerLost, "the link to the peer ended"});
    } else {
      link_->Get(pull->region, pull->offset, pull->into, std::move(completed));
    }
  }
}

void PeerLink::Finished(const Pull& pull, const Status& status) {
  --running_;
  pull.done(status);
  Pump();
}

void PeerLink::End() {
  if (ending_) return;
  ending_ = true;
  executors_.blocking.Post([this, link = std::shared_ptr<transfer::Link>(std::move(link_))]() mutable {
    link.reset();  // all its gets have completed when this returns
    executors_.control.Post([this] { ended_ = true; });
  });
  Pump();
}

PeerLinks::PeerLinks(PullExecutors executors, transfer::Transport& transport, uint32_t max_pulls, Duration idle_time)
    : executors_(executors), transport_(transport), max_pulls_(max_pulls), idle_time_(idle_time) {}

StatusOr<std::shared_ptr<PeerLink>> PeerLinks::Get(const peer::MemoryAddress& peer, cluster::Incarnation incarnation) {
  const auto known = links_.find(peer.transport_address);
  if (known != links_.end()) {
    if (known->second.incarnation == incarnation) {
      known->second.used = executors_.control.Now();
      return known->second.link;
    }
    Retire(std::shared_ptr<PeerLink>(known->second.link));
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<transfer::Link> link, transport_.Connect(peer.transport_address));
  auto made = std::make_shared<PeerLink>(executors_, std::move(link), max_pulls_);
  links_[peer.transport_address] = {incarnation, made, executors_.control.Now()};
  return made;
}

void PeerLinks::Retire(const std::shared_ptr<PeerLink>& link) {
  const auto found =
      std::find_if(links_.begin(), links_.end(), [&](const auto& entry) { return entry.second.link == link; });
  if (found == links_.end()) return;
  retired_.push_back(link);
  links_.erase(found);
  link->End();
}

void PeerLinks::RetireUnused(TimePoint now, bool all) {
  std::vector<std::shared_ptr<PeerLink>> unused;
  for (auto& [address, entry] : links_) {
    if (entry.link.use_count() > 1 || entry.link->running() > 0) {
      entry.used = now;
    } else if (all || now - entry.used >= idle_time_) {
      unused.push_back(entry.link);
    }
  }
  for (const auto& link : unused) Retire(link);
  std::erase_if(retired_, [](const auto& link) { return link->ended() && link->running() == 0; });
}

}  // namespace millrace::runtime
