#include "common/transfer/fault/fault.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <optional>

#include "common/transfer/loopback/loopback.h"

namespace millrace::transfer::fault {
namespace {

constexpr size_t kSize = 1000;

class Fault : public testing::Test {
 protected:
  void SetUp() override {
    auto owner = loopback::MakeLoopbackTransport({});
    auto reader = loopback::MakeLoopbackTransport({});
    ASSERT_TRUE(owner.ok() && reader.ok());
    owner_ = *std::move(owner);
    faulty_ = MakeFaultyTransport(*std::move(reader), {});
    source_.assign(kSize, std::byte{7});
    auto region = owner_->Register(source_);
    ASSERT_TRUE(region.ok());
    region_ = *std::move(region);
    Reconnect();
  }

  void Reconnect() {
    auto link = faulty_->Connect(owner_->address());
    ASSERT_TRUE(link.ok());
    link_ = *std::move(link);
    auto remote = link_->Import(region_->descriptor());
    ASSERT_TRUE(remote.ok());
    remote_ = *remote;
  }

  std::future<Status> Start(std::span<std::byte> into) {
    auto promise = std::make_shared<std::promise<Status>>();
    link_->Get(remote_, 0, into, [promise](const Status& status) { promise->set_value(status); });
    return promise->get_future();
  }
  Status Get() {
    into_.assign(kSize, std::byte{0});
    std::future<Status> future = Start(into_);
    if (future.wait_for(Seconds(20)) != std::future_status::ready) return {Code::kDeadlineExceeded, "no completion"};
    return future.get();
  }
  ptrdiff_t Arrived() { return std::count(into_.begin(), into_.end(), std::byte{7}); }

  std::vector<std::byte> source_;
  std::vector<std::byte> into_;
  std::unique_ptr<Transport> owner_;
  std::unique_ptr<FaultyTransport> faulty_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Link> link_;
  RemoteRegion remote_{};
};

TEST_F(Fault, WithoutRulesNothingFails) {
  EXPECT_TRUE(Get().ok());
  EXPECT_EQ(Arrived(), 1000);
  EXPECT_EQ(faulty_->faults(), 0u);
}

TEST_F(Fault, FailsAfterSoManyBytes) {
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kFail, .bytes = 300}}});
  EXPECT_EQ(Get().code(), Code::kUnavailable);
  EXPECT_EQ(Arrived(), 300);
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kFail}}});
  EXPECT_EQ(Get().code(), Code::kUnavailable);
  EXPECT_EQ(Arrived(), 0);
}

TEST_F(Fault, CorruptsOneByteAndSaysOk) {
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kCorrupt, .bytes = 1234}}});
  EXPECT_TRUE(Get().ok());
  EXPECT_EQ(Arrived(), 999);
  EXPECT_NE(into_[234], std::byte{7});
}

TEST_F(Fault, DelaysTheCompletionNotTheBytes) {
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kDelay, .delay = Milliseconds(20)}}});
  const TimePoint start = SystemClock().Now();
  EXPECT_TRUE(Get().ok());
  EXPECT_GE(SystemClock().Now() - start, Milliseconds(20));
  EXPECT_EQ(Arrived(), 1000);
}

TEST_F(Fault, AStalledGetEndsWithItsLink) {
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kStall, .gets = 1}}});
  into_.assign(kSize, std::byte{0});
  std::future<Status> stalled = Start(into_);
  std::vector<std::byte> other(kSize);
  EXPECT_TRUE(Start(other).get().ok()) << "gets after it go on";
  EXPECT_EQ(stalled.wait_for(Seconds(0)), std::future_status::timeout);
  link_.reset();
  EXPECT_EQ(stalled.get().code(), Code::kCancelled);
  EXPECT_EQ(Arrived(), 0);
}

TEST_F(Fault, ADelayedCompletionEndsWithItsLink) {
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kDelay, .delay = Seconds(3600)}}});
  std::vector<std::byte> bytes(kSize);
  std::future<Status> delayed = Start(bytes);
  link_.reset();
  EXPECT_EQ(delayed.get().code(), Code::kCancelled);
}

TEST_F(Fault, ADroppedLinkStaysDroppedAndANewOneWorks) {
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kDropLink, .first_get = 1, .gets = 1}}});
  EXPECT_TRUE(Get().ok());
  EXPECT_EQ(Get().reason(), Reason::kPeerLost);
  EXPECT_EQ(Get().reason(), Reason::kPeerLost);
  Reconnect();
  EXPECT_TRUE(Get().ok());
}

TEST_F(Fault, TheSeedDecidesWhichGetsAreHit) {
  const auto hits = [&](uint64_t seed) {
    faulty_->SetPlan({.seed = seed, .rules = {{.kind = FaultKind::kFail, .probability = 0.3}}});
    std::string out;
    for (int i = 0; i < 64; ++i) out.push_back(Get().ok() ? '.' : 'x');
    return out;
  };
  const std::string first = hits(1);
  EXPECT_EQ(hits(1), first);
  EXPECT_NE(hits(2), first);
  const ptrdiff_t count = std::count(first.begin(), first.end(), 'x');
  EXPECT_GT(count, 5);
  EXPECT_LT(count, 40);
}

TEST_F(Fault, TheFirstRuleThatCoversAGetWins) {
  faulty_->SetPlan({.rules = {{.kind = FaultKind::kCorrupt, .gets = 1}, {.kind = FaultKind::kFail, .gets = 2}}});
  EXPECT_TRUE(Get().ok());
  EXPECT_FALSE(Get().ok());
  EXPECT_TRUE(Get().ok());
  EXPECT_EQ(faulty_->faults(), 2u);
}

}  // namespace
}  // namespace millrace::transfer::fault
