#include "common/cluster/pool.h"

#include <algorithm>
#include <utility>

namespace millrace::cluster {
namespace {

constexpr size_t kSupersededRemembered = 16;

bool Contains(std::span<const Incarnation> list, Incarnation incarnation) {
  return std::find(list.begin(), list.end(), incarnation) != list.end();
}

Status CheckInfo(const InstanceInfo& info, Role role) {
  if (info.role != role) {
    return InvalidArgument("a " + std::string(RoleName(info.role)) + " instance reported to the balancer of role " +
                           std::string(RoleName(role)) + "; give it the addresses of its own balancers");
  }
  if (info.instance_id.empty()) return InvalidArgument("hello without an instance id");
  if (info.incarnation == 0) return InvalidArgument("hello of " + info.instance_id + " without an incarnation");
  if (info.address.empty()) return InvalidArgument("hello of " + info.instance_id + " without an address");
  return OkStatus();
}

}  // namespace

bool ModelSelector::Matches(const ModelIdentity& model) const {
  return (name.empty() || name == model.name) && (layout_digest.empty() || layout_digest == model.layout_digest) &&
         (model_digest.empty() || model_digest == model.model_digest);
}

std::string_view DeathCauseName(DeathCause cause) {
  switch (cause) {
    case DeathCause::kSilent:
      return "silent";
    case DeathCause::kNoProgress:
      return "no_progress";
  }
  return "unknown";
}

bool Pool::Usable(const Member& member, const ModelSelector& selector) {
  const Instance& instance = member.instance;
  return instance.load.ready && !instance.load.draining && !member.stuck_at && selector.Matches(instance.info.model);
}

Pool::Member* Pool::FindMember(Incarnation incarnation) {
  const auto id = ids_.find(incarnation);
  if (id == ids_.end()) return nullptr;
  return &by_id_.find(id->second)->second;
}

const InstanceInfo* Pool::Find(Incarnation incarnation) const {
  const auto id = ids_.find(incarnation);
  return id == ids_.end() ? nullptr : &by_id_.find(id->second)->second.instance.info;
}

Status Pool::Hello(const InstanceInfo& info, TimePoint now) {
  MR_RETURN_IF_ERROR(CheckInfo(info, role_));
  std::vector<Incarnation> superseded;
  if (const auto old = by_id_.find(info.instance_id); old != by_id_.end()) {
    const Incarnation holder = old->second.instance.info.incarnation;
    superseded = old->second.superseded;
    if (Contains(superseded, info.incarnation)) {
      return Status(Code::kAlreadyExists,
                    "instance " + info.instance_id + " is another process now; give each process a name of its own");
    }
    if (holder != info.incarnation) {
      superseded.push_back(holder);
      if (superseded.size() > kSupersededRemembered) superseded.erase(superseded.begin());
    }
    Erase(old, now);
  }
  if (const auto other = ids_.find(info.incarnation); other != ids_.end()) Erase(by_id_.find(other->second), now);
  Member member;
  member.instance.info = info;
  member.last_heard = now;
  member.last_progress = now;
  member.superseded = std::move(superseded);
  for (const auto& [incarnation, progress] : stuck_) {
    if (incarnation == info.incarnation) member.stuck_at = progress;
  }
  ids_[info.incarnation] = info.instance_id;
  by_id_[info.instance_id] = std::move(member);
  std::erase_if(lost_, [&](const auto& lost) { return lost.first == info.model; });
  ++version_;
  return OkStatus();
}

bool Pool::Report(Incarnation incarnation, const Load& load, TimePoint now) {
  Member* member = FindMember(incarnation);
  if (member == nullptr) return false;
  member->last_heard = now;
  Load& last = member->instance.load;
  if (member->reported && load.sequence <= last.sequence) return true;
  member->reported = true;
  if (!load.busy || !last.busy || load.progress != last.progress) member->last_progress = now;
  if (member->stuck_at && (!load.busy || load.progress != *member->stuck_at)) {
    member->stuck_at.reset();
    std::erase_if(stuck_, [&](const auto& stuck) { return stuck.first == incarnation; });
  }
  Instance& instance = member->instance;
  while (!member->picks.empty() && member->picks.front().when + options_.settle <= now) {
    instance.pending_requests -= 1;
    instance.pending_tokens -= member->picks.front().tokens;
    member->picks.pop_front();
  }
  last = load;
  ++version_;
  return true;
}

void Pool::Erase(MemberMap::iterator it, TimePoint now) {
  const ModelIdentity model = it->second.instance.info.model;
  ids_.erase(it->second.instance.info.incarnation);
  by_id_.erase(it);
  ++version_;
  const bool left = std::any_of(by_id_.begin(), by_id_.end(),
                                [&](const auto& entry) { return entry.second.instance.info.model == model; });
  if (left) return;
  lost_.emplace_back(model, now);
  if (lost_.size() > kLostRemembered) lost_.pop_front();
}

void Pool::Remove(Incarnation incarnation, TimePoint now) {
  const auto id = ids_.find(incarnation);
  if (id != ids_.end()) Erase(by_id_.find(id->second), now);
}

std::vector<Death> Pool::Expire(TimePoint now) {
  std::vector<Death> deaths;
  for (const auto& [id, member] : by_id_) {
    if (now - member.last_heard >= options_.silence) {
      deaths.push_back({member.instance.info, DeathCause::kSilent});
    } else if (member.instance.load.busy && !member.stuck_at && now - member.last_progress >= options_.progress) {
      deaths.push_back({member.instance.info, DeathCause::kNoProgress});
      stuck_.emplace_back(member.instance.info.incarnation, member.instance.load.progress);
      if (stuck_.size() > kStuckRemembered) stuck_.pop_front();
    }
  }
  for (const Death& death : deaths) Remove(death.info.incarnation, now);
  return deaths;
}

void Pool::ForgiveStall(Duration lost) {
  for (auto& [id, member] : by_id_) {
    member.last_heard += lost;
    member.last_progress += lost;
  }
}

void Pool::AddPick(Incarnation incarnation, uint32_t tokens, TimePoint now) {
  Member* member = FindMember(incarnation);
  if (member == nullptr) return;
  member->picks.push_back({now, tokens});
  member->instance.pending_requests += 1;
  member->instance.pending_tokens += tokens;
  ++version_;
}

ClusterView Pool::Candidates(const ModelSelector& selector, std::span<const Incarnation> excluded) const {
  ClusterView wanted{version_, {}};
  ClusterView tried{version_, {}};
  for (const auto& [id, member] : by_id_) {
    if (!Usable(member, selector)) continue;
    ClusterView& view = Contains(excluded, member.instance.info.incarnation) ? tried : wanted;
    view.instances.push_back(member.instance);
  }
  return wanted.instances.empty() ? tried : wanted;
}

bool Pool::Has(const ModelSelector& selector) const {
  return std::any_of(by_id_.begin(), by_id_.end(),
                     [&](const auto& entry) { return selector.Matches(entry.second.instance.info.model); });
}

const TimePoint* Pool::LostAt(const ModelSelector& selector) const {
  if (Has(selector)) return nullptr;
  for (auto it = lost_.rbegin(); it != lost_.rend(); ++it) {
    if (selector.Matches(it->first)) return &it->second;
  }
  return nullptr;
}

std::vector<ModelCount> Pool::Models() const {
  std::map<std::pair<std::string, std::string>, ModelCount> counts;
  for (const auto& [id, member] : by_id_) {
    const ModelIdentity& model = member.instance.info.model;
    ModelCount& count = counts[{model.name, model.layout_digest}];
    // Instances of one layout may differ in context: the pool promises the smallest.
    if (count.model.layout_digest.empty() || model.context_tokens < count.model.context_tokens) count.model = model;
    if (Usable(member, {})) ++count.ready;
  }
  std::vector<ModelCount> models;
  for (auto& [key, count] : counts) models.push_back(std::move(count));
  return models;
}

std::vector<Incarnation> Pool::Live() const {
  std::vector<Incarnation> live;
  for (const auto& [incarnation, id] : ids_) live.push_back(incarnation);
  return live;
}

std::vector<Instance> Pool::Instances() const {
  std::vector<Instance> instances;
  for (const auto& [id, member] : by_id_) instances.push_back(member.instance);
  return instances;
}

}  // namespace millrace::cluster
