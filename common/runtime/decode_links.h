#pragma once
// The links over which a decode worker reads the KV of prefill workers: one a peer process, kept while it is used, and
// the pulls that run over them. Everything on `control`; checksums on `checksum`; links end on `blocking`, which may
// take a second each.
//
// Every pull calls its `done` exactly once on `control`, whatever happens to the peer, unless it was dropped before it
// began. When `done` has run, nothing writes into its destination any more. So a destination is free for other use when
// its pulls are done, and Retire makes the pulls of a stopped peer be done within about a second.

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "common/base/executor.h"
#include "common/base/status.h"
#include "common/cluster/instance.h"
#include "common/peer/protocols.h"
#include "common/transfer/transport.h"

namespace millrace::runtime {

struct PullExecutors {
  Executor& control;
  Executor& checksum;
  Executor& blocking;
};

struct Pull {
  uint64_t owner = 0;
  transfer::RemoteRegion region{};
  uint64_t offset = 0;
  std::span<std::byte> into;
  uint32_t crc32c = 0;  // of the bytes; others are kDataLoss(kKvCorrupt)
  std::function<void(Status)> done;
};

class PeerLink {
 public:
  PeerLink(PullExecutors executors, std::unique_ptr<transfer::Link> link, uint32_t max_pulls);

  StatusOr<transfer::RemoteRegion> Import(const std::string& descriptor);
  void Start(Pull pull);
  // Forgets the pulls of `owner` that did not begin: their `done` never runs. Returns how many.
  uint32_t Drop(uint64_t owner);

  uint32_t running() const { return running_; }
  bool ended() const { return ended_; }

 private:
  friend class PeerLinks;

  void Pump();
  void Finished(const Pull& pull, const Status& status);
  void End();

  const PullExecutors executors_;
  const uint32_t max_pulls_;
  std::unique_ptr<transfer::Link> link_;
  std::map<std::string, transfer::RemoteRegion> regions_;
  std::deque<Pull> queue_;
  uint32_t running_ = 0;
  bool ending_ = false;  // the link is being destroyed
  bool ended_ = false;   // and is gone
};

class PeerLinks {
 public:
  PeerLinks(PullExecutors executors, transfer::Transport& transport, uint32_t max_pulls, Duration idle_time);

  // The link to that life of that process, made when there is none; a link to an earlier life is retired.
  StatusOr<std::shared_ptr<PeerLink>> Get(const peer::MemoryAddress& peer, cluster::Incarnation incarnation);
  // Ends the link and all its pulls; the next Get makes a new one. No-op when it is retired already.
  void Retire(const std::shared_ptr<PeerLink>& link);
  // Retires links that nobody holds: all of them, or those unused for the idle time; forgets what retired before.
  void RetireUnused(TimePoint now, bool all);

  size_t open() const { return links_.size() + retired_.size(); }

 private:
  struct Entry {
    cluster::Incarnation incarnation = 0;
    std::shared_ptr<PeerLink> link;
    TimePoint used;
  };

  const PullExecutors executors_;
  transfer::Transport& transport_;
  const uint32_t max_pulls_;
  const Duration idle_time_;
  std::map<std::string, Entry> links_;            // by transport address
  std::list<std::shared_ptr<PeerLink>> retired_;  // until their last pull is done
};

}  // namespace millrace::runtime
