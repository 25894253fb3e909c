#pragma once
// Pool: what a balancer knows of the instances of one role, built from their reports alone. Soft state: a balancer that
// starts empty is complete again after one report of each instance. Pure: time comes in as an argument. Not
// thread-safe.
//
// An instance is one incarnation. It is live from its hello until Remove (its stream closed) or until Expire finds it
// silent or busy without progress. A hello under a known instance_id and another incarnation takes the old one's place:
// the old one is gone at once, and while its successor lives it is refused. One that died without progress and comes
// back is live but no candidate until it progresses or has no work.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"
#include "common/cluster/instance.h"

namespace millrace::cluster {

struct PoolOptions {
  Duration silence = Milliseconds(1500);   // no word for so long is death
  Duration progress = Milliseconds(5000);  // busy without growing progress for so long is death
  Duration settle = Milliseconds(150);     // a report this much younger than a pick is taken to include it
};

// Which instances a request can use. An empty field matches any.
struct ModelSelector {
  std::string name;
  std::string layout_digest;
  std::string model_digest;
  bool Matches(const ModelIdentity& model) const;
  friend auto operator<=>(const ModelSelector&, const ModelSelector&) = default;
};

enum class DeathCause : uint8_t { kSilent, kNoProgress };
std::string_view DeathCauseName(DeathCause cause);  // "silent"

struct Death {
  InstanceInfo info;
  DeathCause cause = DeathCause::kSilent;
};

// Instances of one model and layout, for those who watch the pool.
struct ModelCount {
  ModelIdentity model;
  uint32_t ready = 0;  // of them ready and not draining
  friend bool operator==(const ModelCount&, const ModelCount&) = default;
};

class Pool {
 public:
  Pool(Role role, PoolOptions options) : role_(role), options_(options) {}

  // Takes the instance in, not ready until its first report. Saying hello again under the same incarnation (a resumed
  // process) keeps nothing of before. kInvalidArgument: wrong role, no incarnation, id or address. kAlreadyExists: the
  // incarnation was replaced and its successor lives.
  Status Hello(const InstanceInfo& info, TimePoint now);
  // False when the incarnation is not live. A report that is not newer than the last one only proves life.
  bool Report(Incarnation incarnation, const Load& load, TimePoint now);
  // No-op when not live.
  void Remove(Incarnation incarnation, TimePoint now);
  // Removes and returns those that died by `now`.
  std::vector<Death> Expire(TimePoint now);
  // The observer itself did not run for `lost`: nothing that was due meanwhile counts against an instance.
  void ForgiveStall(Duration lost);

  // Counts a pick of this balancer against the instance until a report shows it.
  void AddPick(Incarnation incarnation, uint32_t tokens, TimePoint now);

  // Ready, not draining, matching; without `excluded` unless nothing else is left. Sorted by instance_id.
  ClusterView Candidates(const ModelSelector& selector, std::span<const Incarnation> excluded) const;
  // Whether any live instance matches, ready or not.
  bool Has(const ModelSelector& selector) const;
  // When the last live instance that matches left; nullptr when one is live or none ever was (or it was long ago: the
  // last kLostRemembered models are kept).
  const TimePoint* LostAt(const ModelSelector& selector) const;
  const InstanceInfo* Find(Incarnation incarnation) const;

  std::vector<ModelCount> Models() const;   // sorted by name, then layout digest
  std::vector<Incarnation> Live() const;    // sorted
  std::vector<Instance> Instances() const;  // all live, sorted by instance_id
  size_t size() const { return by_id_.size(); }
  uint64_t version() const { return version_; }  // grows with every change of what a view would show

  static constexpr size_t kLostRemembered = 64;
  static constexpr size_t kStuckRemembered = 64;

 private:
  struct Pick {
    TimePoint when;
    uint32_t tokens = 0;
  };
  struct Member {
    Instance instance;
    TimePoint last_heard;
    TimePoint last_progress;
    bool reported = false;
    std::optional<uint64_t> stuck_at;     // died at this progress and has not moved since
    std::deque<Pick> picks;               // oldest first
    std::vector<Incarnation> superseded;  // earlier holders of the id
  };
  using MemberMap = std::map<std::string, Member, std::less<>>;

  static bool Usable(const Member& member, const ModelSelector& selector);
  Member* FindMember(Incarnation incarnation);
  void Erase(MemberMap::iterator it, TimePoint now);

  const Role role_;
  const PoolOptions options_;
  uint64_t version_ = 0;
  MemberMap by_id_;
  std::map<Incarnation, std::string> ids_;  // live incarnations
  std::deque<std::pair<ModelIdentity, TimePoint>> lost_;
  std::deque<std::pair<Incarnation, uint64_t>> stuck_;  // died without progress, at what progress
};

}  // namespace millrace::cluster
