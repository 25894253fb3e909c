// A balancer, workers that report to it and clients that ask it, over the in-process network in virtual time.

#include "common/runtime/balancer_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/event_loop.h"
#include "tests/support/local_network.h"

namespace millrace::runtime {
namespace {

using cluster::Incarnation;
using cluster::Role;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kBalancer = "balancer:1";

// The executor of a process that can be stopped: meanwhile time goes on and nothing of it runs.
class StoppableExecutor final : public Executor {
 public:
  explicit StoppableExecutor(ManualExecutor& executor) : executor_(executor) {}
  void Post(Task task) override { executor_.Post(Guard(std::move(task))); }
  TimerId PostAt(TimePoint when, Task task) override { return executor_.PostAt(when, Guard(std::move(task))); }
  void Cancel(TimerId timer) override { executor_.Cancel(timer); }
  TimePoint Now() const override { return executor_.Now(); }

  void Stop() { stopped_ = true; }
  void Continue() {
    stopped_ = false;
    for (Task& task : std::exchange(held_, {})) task();
  }

 private:
  Task Guard(Task task) {
    return [this, task = std::move(task)] { stopped_ ? held_.push_back(task) : task(); };
  }
  ManualExecutor& executor_;
  bool stopped_ = false;
  std::vector<Task> held_;
};

// Reports like a worker: hello, then a load each heartbeat until stopped; redials when its stream closes.
class FakeWorker {
 public:
  FakeWorker(support::LocalNetwork& network, ManualExecutor& executor, cluster::InstanceInfo info)
      : executor_(executor), info_(std::move(info)) {
    dialer_ = network.MakeDialer<peer::ReportProtocol>(executor, info_.address);
    load.ready = true;
    load.free_blocks = info_.total_blocks;
    Dial();
    Beat();
  }
  ~FakeWorker() { executor_.Cancel(timer_); }

  void Report() {
    ++load.sequence;
    if (stream_) stream_->Send(peer::LoadReport{load});
  }
  int closes() const { return closes_; }
  const Status& last_close() const { return last_close_; }

  cluster::Load load;

 private:
  void Dial() {
    stream_ = dialer_->Open(kBalancer, {[](peer::ReportProtocol::Down) {},
                                        [this](Status status) {
                                          ++closes_;
                                          last_close_ = std::move(status);
                                          stream_ = nullptr;
                                        }});
    stream_->Send(peer::WorkerHello{info_});
    Report();
  }
  void Beat() {
    if (stream_) {
      Report();
    } else {
      Dial();
    }
    timer_ = executor_.PostAfter(Milliseconds(250), [this] { Beat(); });
  }

  ManualExecutor& executor_;
  const cluster::InstanceInfo info_;
  std::unique_ptr<peer::Dialer<peer::ReportProtocol>> dialer_;
  std::unique_ptr<peer::ClientStream<peer::ReportProtocol>> stream_;
  TimerId timer_ = TimerId::kNone;
  int closes_ = 0;
  Status last_close_;
};

struct PickResult {
  std::unique_ptr<peer::ClientStream<peer::PickProtocol>> stream;
  std::optional<peer::Route> route;
  std::optional<Status> closed;
  int heartbeats = 0;
};

class BalancerRuntimeTest : public testing::Test {
 protected:
  void StartBalancer(BalancerOptions options = {}) {
    auto made = BalancerRuntime::Make(options, process_, *metrics_);
    ASSERT_TRUE(made.ok());
    balancer_ = *std::move(made);
    network_.Serve<peer::ReportProtocol>(kBalancer, process_, *balancer_);
    network_.Serve<peer::PickProtocol>(kBalancer, process_, *balancer_);
    network_.Serve<peer::WatchProtocol>(kBalancer, process_, *balancer_);
    balancer_->Start();
  }
  void StopBalancer() {
    network_.Kill(kBalancer);
    executor_.RunReady();
    balancer_ = nullptr;
  }

  cluster::InstanceInfo Info(const std::string& id, Incarnation incarnation, Role role = Role::kPrefill) {
    return {id, incarnation, role, id + ":" + std::to_string(incarnation), {"model", "digest-a", 2048}, 2, 1000};
  }
  FakeWorker& AddWorker(const std::string& id, Incarnation incarnation, Role role = Role::kPrefill) {
    return AddWorker(Info(id, incarnation, role));
  }
  FakeWorker& AddWorker(const cluster::InstanceInfo& info) {
    workers_[info.incarnation] = std::make_unique<FakeWorker>(network_, executor_, info);
    executor_.RunReady();
    return *workers_[info.incarnation];
  }
  // kill -9: its connections close.
  void KillWorker(Incarnation incarnation, const std::string& id) {
    network_.Kill(id + ":" + std::to_string(incarnation));
    workers_.erase(incarnation);
    executor_.RunReady();
  }

  std::unique_ptr<PickResult> Pick(peer::PickRequest request = {}) {
    if (request.model.empty() && request.layout_digest.empty()) request.model = "model";
    if (request.prompt_tokens == 0) request.prompt_tokens = 100;
    auto result = std::make_unique<PickResult>();
    result->stream = pick_dialer_->Open(kBalancer, {[r = result.get()](peer::PickProtocol::Down message) {
                                                      if (auto* route = std::get_if<peer::Route>(&message)) {
                                                        EXPECT_FALSE(r->route.has_value());
                                                        r->route = *route;
                                                      } else {
                                                        ++r->heartbeats;
                                                      }
                                                    },
                                                    [r = result.get()](Status status) { r->closed = status; }});
    result->stream->Send(request);
    executor_.RunReady();
    return result;
  }

  Incarnation Target(const peer::PickRequest& request = {}) {
    const auto result = Pick(request);
    if (!result->route) return 0;
    EXPECT_TRUE(result->closed && result->closed->ok());
    return result->route->incarnation;
  }

  ManualExecutor executor_;
  StoppableExecutor process_{executor_};  // the balancer's
  support::LocalNetwork network_;
  std::unique_ptr<MetricRegistry> metrics_ = MakeMemoryMetrics();
  std::unique_ptr<peer::Dialer<peer::PickProtocol>> pick_dialer_ =
      network_.MakeDialer<peer::PickProtocol>(executor_, "client:1");
  std::unique_ptr<BalancerRuntime> balancer_;
  std::map<Incarnation, std::unique_ptr<FakeWorker>> workers_;
};

TEST_F(BalancerRuntimeTest, RoutesToAReadyWorker) {
  StartBalancer();
  AddWorker("a", 11);
  const auto pick = Pick();
  ASSERT_TRUE(pick->route);
  EXPECT_EQ(pick->route->instance_id, "a");
  EXPECT_EQ(pick->route->incarnation, 11u);
  EXPECT_EQ(pick->route->address, "a:11");
  ASSERT_TRUE(pick->closed);
  EXPECT_TRUE(pick->closed->ok());
  EXPECT_EQ(balancer_->waiting_picks(), 0u);
}

TEST_F(BalancerRuntimeTest, WorkersThatStartBeforeTheBalancerAreFound) {
  AddWorker("a", 11);
  AddWorker("b", 12);
  executor_.Advance(Seconds(2));
  StartBalancer();
  executor_.Advance(Milliseconds(300));
  EXPECT_EQ(balancer_->Instances().size(), 2u);
  EXPECT_NE(Target(), 0u);
}

TEST_F(BalancerRuntimeTest, APickThatComesBeforeTheFirstWorkerWaitsForItWithHeartbeats) {
  StartBalancer();
  const auto pick = Pick();
  executor_.Advance(Milliseconds(1500));
  EXPECT_FALSE(pick->closed);
  EXPECT_GE(pick->heartbeats, 5);
  AddWorker("a", 11);
  ASSERT_TRUE(pick->route);
  EXPECT_EQ(pick->route->incarnation, 11u);
}

TEST_F(BalancerRuntimeTest, AReplacementReplicaLearnsThePoolAgain) {
  StartBalancer();
  AddWorker("a", 11);
  AddWorker("b", 12);
  StopBalancer();
  StartBalancer();
  const auto pick = Pick();
  executor_.Advance(Milliseconds(500));
  EXPECT_TRUE(pick->route);
  EXPECT_EQ(balancer_->Instances().size(), 2u);
}

TEST_F(BalancerRuntimeTest, AClosedStreamIsDeathAtOnce) {
  StartBalancer();
  AddWorker("a", 11);
  AddWorker("b", 12);
  KillWorker(11, "a");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Target(), 12u);
}

TEST_F(BalancerRuntimeTest, SilenceIsDeathAfterTheDeadline) {
  StartBalancer();
  AddWorker("a", 11);
  AddWorker("b", 12);
  network_.Stall("a:11");
  executor_.Advance(Milliseconds(1200));
  EXPECT_EQ(balancer_->Instances().size(), 2u);
  executor_.Advance(Milliseconds(600));
  ASSERT_EQ(balancer_->Instances().size(), 1u);
  EXPECT_EQ(Target(), 12u);
}

TEST_F(BalancerRuntimeTest, AResumedWorkerRejoinsUnderItsIncarnation) {
  StartBalancer();
  FakeWorker& worker = AddWorker("a", 11);
  AddWorker("b", 12);
  network_.Stall("a:11");
  executor_.Advance(Seconds(4));
  ASSERT_EQ(balancer_->Instances().size(), 1u);
  network_.Resume("a:11");
  executor_.Advance(Seconds(1));
  EXPECT_EQ(worker.closes(), 1);
  EXPECT_EQ(worker.last_close().reason(), Reason::kPeerLost);
  EXPECT_EQ(balancer_->Instances().size(), 2u);
  EXPECT_EQ(Target({.model = "model", .excluded = {12}}), 11u);
}

TEST_F(BalancerRuntimeTest, ARestartedWorkerReplacesItsOldIncarnationEvenBeforeItsDeathWasSeen) {
  StartBalancer();
  AddWorker("a", 11);
  network_.Stall("a:11");
  AddWorker("a", 99);
  ASSERT_EQ(balancer_->Instances().size(), 1u);
  EXPECT_EQ(Target(), 99u);
  network_.Resume("a:11");
  executor_.Advance(Seconds(3));
  ASSERT_EQ(balancer_->Instances().size(), 1u);
  EXPECT_EQ(Target(), 99u);
  EXPECT_EQ(workers_[11]->last_close().code(), Code::kAlreadyExists);
}

TEST_F(BalancerRuntimeTest, BusyWithoutProgressIsDeath) {
  StartBalancer();
  FakeWorker& worker = AddWorker("a", 11);
  worker.load.busy = true;
  executor_.Advance(Milliseconds(4500));
  EXPECT_EQ(balancer_->Instances().size(), 1u);
  AddWorker("b", 12);
  executor_.Advance(Milliseconds(1250));
  EXPECT_EQ(worker.last_close().reason(), Reason::kPeerLost);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Target({.model = "model", .excluded = {12}}), 12u);
  ++worker.load.progress;
  executor_.Advance(Milliseconds(250));
  EXPECT_EQ(Target({.model = "model", .excluded = {12}}), 11u);
}

TEST_F(BalancerRuntimeTest, ABurstBetweenTwoReportsDoesNotHerd) {
  StartBalancer();
  for (Incarnation i = 11; i <= 14; ++i) AddWorker("w" + std::to_string(i), i);
  std::map<Incarnation, int> hits;
  for (int i = 0; i < 40; ++i) ++hits[Target()];
  for (Incarnation i = 11; i <= 14; ++i) EXPECT_EQ(hits[i], 10);
}

TEST_F(BalancerRuntimeTest, TheShorterQueueIsPreferred) {
  StartBalancer();
  FakeWorker& busy = AddWorker("a", 11);
  AddWorker("b", 12);
  busy.load.queued_tokens = 100000;
  busy.Report();
  executor_.RunReady();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Target(), 12u);
}

TEST_F(BalancerRuntimeTest, ADecodePickWaitsForRoomAndIsThenRouted) {
  StartBalancer({.role = Role::kDecode});
  FakeWorker& worker = AddWorker("a", 11, Role::kDecode);
  worker.load.running = 2;  // max_sequences
  worker.Report();
  const auto first = Pick({.layout_digest = "digest-a"});
  const auto second = Pick({.layout_digest = "digest-a"});
  executor_.Advance(Seconds(5));
  EXPECT_FALSE(first->closed);
  EXPECT_GE(first->heartbeats, 10);
  worker.load.running = 1;
  worker.Report();
  executor_.RunReady();
  EXPECT_TRUE(first->route);
  EXPECT_FALSE(second->route) << "the pick just made counts";
  worker.load.running = 0;
  executor_.Advance(Milliseconds(500));
  EXPECT_TRUE(second->route);
}

TEST_F(BalancerRuntimeTest, APickIsShedAsOverloadedAtItsDeadline) {
  StartBalancer({.role = Role::kDecode, .max_wait = Seconds(3)});
  AddWorker("a", 11, Role::kDecode).load.running = 2;
  executor_.Advance(Milliseconds(250));
  const auto pick = Pick();
  executor_.Advance(Milliseconds(2700));
  EXPECT_FALSE(pick->closed);
  executor_.Advance(Milliseconds(600));
  ASSERT_TRUE(pick->closed);
  EXPECT_EQ(pick->closed->reason(), Reason::kOverloaded);
  EXPECT_TRUE(pick->closed->retry_after_ms());
}

TEST_F(BalancerRuntimeTest, TheQueueOfWaitingPicksIsBounded) {
  StartBalancer({.max_waiting_picks = 3});
  std::vector<std::unique_ptr<PickResult>> picks;
  for (int i = 0; i < 3; ++i) picks.push_back(Pick());
  EXPECT_EQ(balancer_->waiting_picks(), 3u);
  const auto fourth = Pick();
  ASSERT_TRUE(fourth->closed);
  EXPECT_EQ(fourth->closed->reason(), Reason::kOverloaded);
  EXPECT_EQ(balancer_->waiting_picks(), 3u);
}

TEST_F(BalancerRuntimeTest, ACancelledPickLeavesTheQueue) {
  StartBalancer();
  auto pick = Pick();
  EXPECT_EQ(balancer_->waiting_picks(), 1u);
  pick = nullptr;
  executor_.RunReady();
  EXPECT_EQ(balancer_->waiting_picks(), 0u);
}

TEST_F(BalancerRuntimeTest, WithNobodyLeftAPickIsShedAfterTheGrace) {
  StartBalancer();
  AddWorker("a", 11);
  executor_.Advance(Seconds(10));
  KillWorker(11, "a");
  const auto pick = Pick();
  executor_.Advance(Milliseconds(1500));
  EXPECT_FALSE(pick->closed);
  executor_.Advance(Milliseconds(800));
  ASSERT_TRUE(pick->closed);
  EXPECT_EQ(pick->closed->reason(), Reason::kNoInstance);
}

TEST_F(BalancerRuntimeTest, AWorkerThatRestartsWithinTheGraceTakesTheWaitingPick) {
  StartBalancer();
  AddWorker("a", 11);
  executor_.Advance(Seconds(10));
  KillWorker(11, "a");
  const auto pick = Pick();
  executor_.Advance(Seconds(1));
  AddWorker("a", 12);
  ASSERT_TRUE(pick->route);
  EXPECT_EQ(pick->route->incarnation, 12u);
}

TEST_F(BalancerRuntimeTest, AnUnknownModelIsSaidSoAtOnce) {
  StartBalancer();
  AddWorker("a", 11);
  executor_.Advance(Seconds(10));
  const auto pick = Pick({.model = "other"});
  ASSERT_TRUE(pick->closed);
  EXPECT_EQ(pick->closed->reason(), Reason::kModelNotFound);
  EXPECT_THAT(pick->closed->message(), HasSubstr("other"));
}

TEST_F(BalancerRuntimeTest, ExcludedWorkersAreAvoidedUnlessNothingElseIsLeft) {
  StartBalancer();
  AddWorker("a", 11);
  AddWorker("b", 12);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Target({.model = "model", .excluded = {11}}), 12u);
  KillWorker(12, "b");
  EXPECT_EQ(Target({.model = "model", .excluded = {11}}), 11u);
}

TEST_F(BalancerRuntimeTest, LayoutsAreNeverMixed) {
  StartBalancer({.role = Role::kDecode});
  AddWorker("a", 11, Role::kDecode);
  cluster::InstanceInfo other = Info("b", 12, Role::kDecode);
  other.model.layout_digest = "digest-b";
  AddWorker(other);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Target({.layout_digest = "digest-b"}), 12u);
}

TEST_F(BalancerRuntimeTest, GatewayGetsWorkersOfItsOwnModelFileOnly) {
  StartBalancer();
  for (const char* id : {"a", "b"}) {
    cluster::InstanceInfo info = Info(id, *id == 'a' ? 11 : 12, Role::kPrefill);
    info.model.model_digest = id;
    AddWorker(info);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Target({.model = "model", .model_digest = "b"}), 12u);
}

TEST_F(BalancerRuntimeTest, DrainingWorkersGetNothingNew) {
  StartBalancer();
  FakeWorker& worker = AddWorker("a", 11);
  AddWorker("b", 12);
  worker.load.draining = true;
  worker.Report();
  executor_.RunReady();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Target(), 12u);
}

TEST_F(BalancerRuntimeTest, AWorkerOfTheWrongRoleIsRefusedWithTheReason) {
  StartBalancer({.role = Role::kDecode});
  FakeWorker& worker = AddWorker("a", 11, Role::kPrefill);
  EXPECT_EQ(worker.last_close().code(), Code::kInvalidArgument);
  EXPECT_THAT(worker.last_close().message(), HasSubstr("prefill"));
}

TEST_F(BalancerRuntimeTest, AStalledBalancerDeclaresNobodyDeadWhenItWakes) {
  StartBalancer();
  AddWorker("a", 11);
  executor_.Advance(Seconds(1));
  process_.Stop();
  executor_.Advance(Seconds(10));
  process_.Continue();
  EXPECT_EQ(balancer_->Instances().size(), 1u);
  executor_.Advance(Seconds(3));
  EXPECT_EQ(balancer_->Instances().size(), 1u);
  EXPECT_EQ(workers_[11]->closes(), 0);
}

TEST_F(BalancerRuntimeTest, DrainSendsCallersElsewhere) {
  StartBalancer();
  const auto waiting = Pick();
  balancer_->Drain();
  executor_.RunReady();
  ASSERT_TRUE(waiting->closed);
  EXPECT_EQ(waiting->closed->reason(), Reason::kDraining);
  EXPECT_EQ(Pick()->closed->reason(), Reason::kDraining);
}

class WatchTest : public BalancerRuntimeTest {
 protected:
  void Watch() {
    dialer_ = network_.MakeDialer<peer::WatchProtocol>(executor_, "gateway:1");
    stream_ = dialer_->Open(kBalancer, {[this](peer::WatchProtocol::Down message) {
                                          if (auto* state = std::get_if<peer::PoolState>(&message)) {
                                            states_.push_back(*state);
                                          } else {
                                            ++heartbeats_;
                                          }
                                        },
                                        [](Status) {}});
    stream_->Send(peer::WatchRequest{});
    executor_.RunReady();
  }
  std::unique_ptr<peer::Dialer<peer::WatchProtocol>> dialer_;
  std::unique_ptr<peer::ClientStream<peer::WatchProtocol>> stream_;
  std::vector<peer::PoolState> states_;
  int heartbeats_ = 0;
};

TEST_F(WatchTest, SaysTheStateAtOnceAndOnChangeOnly) {
  StartBalancer();
  AddWorker("a", 11);
  Watch();
  ASSERT_EQ(states_.size(), 1u);
  ASSERT_EQ(states_[0].models.size(), 1u);
  EXPECT_EQ(states_[0].models[0].model.name, "model");
  EXPECT_EQ(states_[0].models[0].ready_instances, 1u);
  EXPECT_THAT(states_[0].live, ElementsAre(11));
  executor_.Advance(Seconds(5));
  EXPECT_EQ(states_.size(), 1u) << "load reports change nothing that a watcher sees";
  EXPECT_GE(heartbeats_, 19);
  KillWorker(11, "a");
  ASSERT_EQ(states_.size(), 2u);
  EXPECT_THAT(states_[1].live, IsEmpty());
}

TEST_F(WatchTest, ANewIncarnationShowsAsOneDeathAndOneBirth) {
  StartBalancer();
  AddWorker("a", 11);
  Watch();
  AddWorker("a", 12);
  ASSERT_GE(states_.size(), 2u);
  EXPECT_THAT(states_.back().live, ElementsAre(12));
}

}  // namespace
}  // namespace millrace::runtime
