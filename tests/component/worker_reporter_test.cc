#include "common/runtime/worker_reporter.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/local_network.h"
#include "tests/support/virtual_time.h"

namespace millrace::runtime {
namespace {

class ChangingAddresses final : public peer::AddressSource {
 public:
  std::vector<std::string> Addresses() const override { return list; }
  std::vector<std::string> list;
};

// Keeps what it is told and answers with heartbeats when asked to.
class RecordingBalancer final : public peer::Service<peer::ReportProtocol> {
 public:
  peer::StreamHandler<peer::ReportProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<peer::ReportProtocol>> accepted) override {
    stream = std::move(accepted);
    ++accepts;
    return {[this](peer::ReportProtocol::Up message) {
              if (auto* hello = std::get_if<peer::WorkerHello>(&message)) {
                hellos.push_back(hello->info);
                reports_before_hello += hellos.size() == 1 ? reports.size() : 0;
              } else {
                reports.push_back(std::get<peer::LoadReport>(message).load);
              }
              if (answers) stream->Send(peer::Heartbeat{});
            },
            [this](const Status&) { ++closes; }};
  }
  std::unique_ptr<peer::ServerStream<peer::ReportProtocol>> stream;
  std::vector<cluster::InstanceInfo> hellos;
  std::vector<cluster::Load> reports;
  size_t reports_before_hello = 0;
  int accepts = 0;
  int closes = 0;
  bool answers = true;
};

class WorkerReporterTest : public ::testing::Test {
 protected:
  WorkerReporterTest() {
    addresses_.list = {"a", "b"};
    network_.Serve<peer::ReportProtocol>("a", balancers_, a_);
    network_.Serve<peer::ReportProtocol>("b", balancers_, b_);
    WorkerReporterOptions options;
    options.info.instance_id = "prefill-0";
    options.info.incarnation = 7;
    reporter_ = std::make_unique<WorkerReporter>(WorkerReporterWiring{control_, *dialer_, addresses_, *metrics_},
                                                 options, [this] { return load_; });
    reporter_->Start();
  }
  void Change(uint32_t queued) {
    control_.Post([this, queued] {
      load_.queued_requests = queued;
      reporter_->Changed();
    });
  }

  support::VirtualTime time_{1};
  support::VirtualExecutor& control_ = time_.Add("control");
  support::VirtualExecutor& balancers_ = time_.Add("balancers");
  support::LocalNetwork network_;
  std::unique_ptr<peer::Dialer<peer::ReportProtocol>> dialer_ =
      network_.MakeDialer<peer::ReportProtocol>(control_, "worker");
  std::unique_ptr<MetricRegistry> metrics_ = MakeMemoryMetrics();
  ChangingAddresses addresses_;
  RecordingBalancer a_;
  RecordingBalancer b_;
  cluster::Load load_;
  std::unique_ptr<WorkerReporter> reporter_;
};

TEST_F(WorkerReporterTest, EveryBalancerHearsHelloAndThenReportsWithGrowingNumbers) {
  time_.Advance(Seconds(2));
  for (const RecordingBalancer* balancer : {&a_, &b_}) {
    ASSERT_EQ(balancer->hellos.size(), 1u);
    EXPECT_EQ(balancer->hellos[0].incarnation, 7u);
    EXPECT_EQ(balancer->reports_before_hello, 0u);
    ASSERT_GE(balancer->reports.size(), 8u);  // at least one each 250 ms
    for (size_t i = 1; i < balancer->reports.size(); ++i) {
      EXPECT_GT(balancer->reports[i].sequence, balancer->reports[i - 1].sequence);
    }
    EXPECT_TRUE(balancer->reports.back().ready);
  }
  EXPECT_EQ(reporter_->connected(), 2u);
}

TEST_F(WorkerReporterTest, ManyChangesBecomeFewReportsAndTheLastIsSeen) {
  time_.Advance(Seconds(1));
  const size_t before = a_.reports.size();
  for (uint32_t i = 1; i <= 100; ++i) {
    Change(i);
    time_.Advance(Milliseconds(2));
  }
  time_.Advance(Milliseconds(60));
  EXPECT_LE(a_.reports.size() - before, 8u);  // 260 ms at 50 ms, and the heartbeats' own
  EXPECT_GE(a_.reports.size() - before, 4u);
  EXPECT_EQ(a_.reports.back().queued_requests, 100u);
}

TEST_F(WorkerReporterTest, ChangeAfterAPauseIsReportedAtOnce) {
  time_.Advance(Seconds(1));
  time_.Advance(Milliseconds(60));
  Change(42);
  time_.Advance(Milliseconds(55));
  EXPECT_EQ(a_.reports.back().queued_requests, 42u);
}

TEST_F(WorkerReporterTest, LostBalancerIsDialledAgainWithBackoff) {
  time_.Advance(Seconds(1));
  network_.Kill("a");
  time_.Advance(Seconds(10));
  EXPECT_EQ(reporter_->connected(), 1u);
  const double tried = metrics_->AddCounter("millrace_worker_balancer_losses_total", "").Value();
  EXPECT_GE(tried, 5);
  EXPECT_LE(tried, 12);
  network_.Serve<peer::ReportProtocol>("a", balancers_, a_);
  time_.Advance(Seconds(3));
  EXPECT_EQ(reporter_->connected(), 2u);
  EXPECT_EQ(a_.hellos.size(), 2u);
}

TEST_F(WorkerReporterTest, SilentBalancerIsGivenUpAndItsQueueStaysShort) {
  time_.Advance(Seconds(1));
  network_.Stall("a");
  const size_t before = a_.reports.size();
  for (uint32_t i = 0; i < 20; ++i) {
    Change(i);
    time_.Advance(Milliseconds(55));
  }
  EXPECT_EQ(reporter_->connected(), 2u);  // 1.1 s: not dead yet
  time_.Advance(Milliseconds(700));
  EXPECT_EQ(reporter_->connected(), 1u);
  network_.Resume("a");
  time_.RunReady();
  EXPECT_LE(a_.reports.size() - before, 8u);
  time_.Advance(Seconds(3));
  EXPECT_EQ(reporter_->connected(), 2u);
}

TEST_F(WorkerReporterTest, BalancersComeAndGoWithTheAddresses) {
  addresses_.list = {"b"};
  time_.Advance(Seconds(1));
  EXPECT_EQ(reporter_->connected(), 1u);
  EXPECT_EQ(a_.accepts, 0);
  addresses_.list = {"a"};
  time_.Advance(Seconds(1));
  EXPECT_EQ(a_.accepts, 1);
  EXPECT_EQ(b_.closes, 1);
}

}  // namespace
}  // namespace millrace::runtime
