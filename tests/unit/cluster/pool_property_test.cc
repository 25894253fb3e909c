// Random histories of hellos, reports, picks, closes and time against a model of the rules that is written the other
// way round: it keeps the whole history and derives the state.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/base/random.h"
#include "common/cluster/pool.h"

namespace millrace::cluster {
namespace {

class PoolHistory {
 public:
  explicit PoolHistory(uint64_t seed) : rng_(seed) {}

  void Step() {
    now_ += Milliseconds(static_cast<int64_t>(rng_.Below(400)));
    switch (rng_.Below(5)) {
      case 0:
        Hello();
        break;
      case 1:
      case 2:
        Report();
        break;
      case 3:
        Pick();
        break;
      default:
        rng_.Below(3) == 0 ? Close() : Expire();
    }
    Check();
  }

 private:
  struct Alive {
    InstanceInfo info;
    bool ready = false;
    TimePoint heard;
    uint64_t sequence = 0;
  };

  Incarnation Any() { return 1 + rng_.Below(12); }

  void Hello() {
    const Incarnation incarnation = Any();
    // Incarnation decides the id: a process has one name.
    InstanceInfo info{"i" + std::to_string(incarnation % 4),
                      incarnation,
                      Role::kDecode,
                      "h:1",
                      {"m", incarnation % 2 == 0 ? "even" : "odd", 128},
                      4,
                      10};
    const Status status = pool_.Hello(info, now_);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kAlreadyExists);
      EXPECT_TRUE(std::any_of(alive_.begin(), alive_.end(), [&](const Alive& a) {
        return a.info.instance_id == info.instance_id && a.info.incarnation != incarnation;
      }));
      return;
    }
    std::erase_if(alive_, [&](const Alive& a) { return a.info.instance_id == info.instance_id; });
    alive_.push_back({info, false, now_, 0});
  }

  Alive* Find(Incarnation incarnation) {
    for (Alive& alive : alive_) {
      if (alive.info.incarnation == incarnation) return &alive;
    }
    return nullptr;
  }

  void Report() {
    const Incarnation incarnation = Any();
    Alive* alive = Find(incarnation);
    Load load;
    load.sequence = alive == nullptr ? 1 : ++alive->sequence;
    load.ready = rng_.Below(4) != 0;
    EXPECT_EQ(pool_.Report(incarnation, load, now_), alive != nullptr);
    if (alive == nullptr) return;
    alive->ready = load.ready;
    alive->heard = now_;
  }

  void Pick() { pool_.AddPick(Any(), static_cast<uint32_t>(rng_.Below(100)), now_); }

  void Close() {
    const Incarnation incarnation = Any();
    pool_.Remove(incarnation, now_);
    std::erase_if(alive_, [&](const Alive& a) { return a.info.incarnation == incarnation; });
  }

  void Expire() {
    std::set<Incarnation> dead;
    for (const Death& death : pool_.Expire(now_)) dead.insert(death.info.incarnation);
    std::erase_if(alive_, [&](const Alive& a) {
      const bool silent = now_ - a.heard >= PoolOptions{}.silence;
      EXPECT_EQ(dead.contains(a.info.incarnation), silent);
      return silent;
    });
  }

  void Check() {
    std::vector<Incarnation> live;
    std::vector<std::pair<std::string, Incarnation>> even;
    for (const Alive& alive : alive_) {
      live.push_back(alive.info.incarnation);
      if (alive.ready && alive.info.model.layout_digest == "even") {
        even.push_back({alive.info.instance_id, alive.info.incarnation});
      }
    }
    std::sort(live.begin(), live.end());
    std::sort(even.begin(), even.end());
    EXPECT_EQ(pool_.Live(), live);
    std::vector<std::pair<std::string, Incarnation>> candidates;
    for (const Instance& i : pool_.Candidates({"", "even"}, {}).instances) {
      candidates.push_back({i.info.instance_id, i.info.incarnation});
    }
    EXPECT_EQ(candidates, even);
    for (const Instance& i : pool_.Instances()) EXPECT_LE(i.pending_tokens, uint64_t{i.pending_requests} * 100);
  }

  Rng rng_;
  TimePoint now_{Seconds(1)};
  Pool pool_{Role::kDecode, PoolOptions{}};
  std::vector<Alive> alive_;
};

TEST(PoolPropertyTest, RandomHistoriesFollowTheRules) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    PoolHistory history(seed);
    for (int step = 0; step < 400 && !testing::Test::HasFailure(); ++step) history.Step();
  }
}

}  // namespace
}  // namespace millrace::cluster
