#include "common/runtime/gateway_runtime.h"

#include <gtest/gtest.h>

#include "common/recipe/utf8.h"
#include "tests/component/gateway_fakes.h"
#include "tests/support/virtual_time.h"

namespace millrace::runtime {
namespace {

using fakes::Fault;
using fakes::PrefillPoint;
using request::FinishReason;

// Two prefill balancers, one decode balancer, two workers of each role.
class GatewayRuntimeTest : public ::testing::Test {
 protected:
  GatewayRuntimeTest()
      : world_(time_.Add("cluster"), network_),
        control_(time_.Add("gateway")),
        work_(time_.Add("work")),
        large_work_(time_.Add("large work")),
        d1_(world_, "d1", 201),
        d2_(world_, "d2", 202),
        p1_(world_, "p1", 101, {&d1_, &d2_}),
        p2_(world_, "p2", 102, {&d1_, &d2_}),
        pb1_(world_, "pb1"),
        pb2_(world_, "pb2"),
        db_(world_, "db") {
    for (auto* balancer : {&pb1_, &pb2_}) balancer->prefills = {&p1_, &p2_};
    pick_ = network_.MakeDialer<peer::PickProtocol>(control_, "gateway");
    prefill_ = network_.MakeDialer<peer::PrefillProtocol>(control_, "gateway");
    decode_ = network_.MakeDialer<peer::DecodeProtocol>(control_, "gateway");
    watch_ = network_.MakeDialer<peer::WatchProtocol>(control_, "gateway");
  }
  ~GatewayRuntimeTest() override { runtime_.reset(); }

  void Start(GatewayOptions options = {}) {
    options.models = {{fakes::kModel, std::make_shared<fakes::ByteRecipe>(), fakes::kModelDigest}};
    GatewayLinks links{&work_,        &large_work_, pick_.get(),         prefill_.get(),
                       decode_.get(), watch_.get(), &prefill_balancers_, &decode_balancers_};
    runtime_ = std::make_unique<GatewayRuntime>(std::move(options), links, control_, *metrics_);
    control_.Post([this] { runtime_->Start(); });
    ASSERT_TRUE(time_.RunUntil([this] { return runtime_->Ready(); }, Seconds(1)));
  }
  gateway::CompletionRequest Request(uint32_t max_tokens = 20) {
    gateway::CompletionRequest request;
    request.request_id = "r";
    request.model = fakes::kModel;
    request.prompt = std::string("once upon a time");
    request.seed = 7;
    request.max_tokens = max_tokens;
    return request;
  }
  void Send(gateway::CompletionRequest request) {
    control_.Post([this, request] { call_ = runtime_->Start(request, sink_); });
  }
  bool RunToEnd(Duration within = Seconds(60)) {
    bool ended = time_.RunUntil([this] { return sink_.ends > 0; }, within);
    time_.Advance(Seconds(2));  // nothing may come after the end
    return ended;
  }
  // The tokens the request would have had on a cluster where nothing ever fails.
  std::vector<request::TokenId> Expected(uint32_t count) {
    request::Generation generation;
    generation.sampling.seed = 7;
    generation.prompt_tokens = 16;
    return world_.oracle.Ids(generation, count);
  }
  void ExpectFinished(uint32_t tokens, FinishReason reason = FinishReason::kLength) {
    EXPECT_EQ(sink_.failed.ToString(), "OK");
    EXPECT_EQ(sink_.accepts, 1);
    EXPECT_EQ(sink_.ends, 1);
    EXPECT_EQ(sink_.late_events, 0);
    EXPECT_EQ(sink_.ids, Expected(tokens));
    EXPECT_EQ(sink_.finished.reason, reason);
    EXPECT_EQ(sink_.finished.usage.prompt_tokens, 16u);
    EXPECT_EQ(sink_.finished.usage.completion_tokens, tokens);
    ExpectNothingLeft();
  }
  void ExpectFailed(Code code, Reason reason) {
    EXPECT_EQ(sink_.ends, 1);
    EXPECT_EQ(sink_.failed.code(), code) << sink_.failed.ToString();
    EXPECT_EQ(sink_.failed.reason(), reason) << sink_.failed.ToString();
    ExpectNothingLeft();
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(runtime_->active(), 0u);
    EXPECT_EQ(p1_.open() + p2_.open() + d1_.open() + d2_.open() + pb1_.open_picks() + pb2_.open_picks(), 0u);
    for (const char* gauge : {"active_requests", "open_streams", "reentries_active", "reentries_waiting"}) {
      EXPECT_EQ(metrics_->AddGauge(std::string("millrace_gateway_") + gauge, "").Value(), 0) << gauge;
    }
  }
  double Reentries(const char* cause) {
    return metrics_->AddCounter("millrace_gateway_reentries_total", "", {{"cause", cause}}).Value();
  }
  std::vector<cluster::Incarnation> LastExcluded() {
    return !pb1_.picks.empty() &&
                   (pb2_.picks.empty() || pb1_.picks.back().excluded.size() >= pb2_.picks.back().excluded.size())
               ? pb1_.picks.back().excluded
               : pb2_.picks.back().excluded;
  }

  support::VirtualTime time_{1};
  support::LocalNetwork network_;
  fakes::World world_;
  support::VirtualExecutor& control_;
  support::VirtualExecutor& work_;
  support::VirtualExecutor& large_work_;
  fakes::FakeDecode d1_;
  fakes::FakeDecode d2_;
  fakes::FakePrefill p1_;
  fakes::FakePrefill p2_;
  fakes::FakeBalancer pb1_;
  fakes::FakeBalancer pb2_;
  fakes::FakeBalancer db_;
  std::unique_ptr<MetricRegistry> metrics_ = MakeMemoryMetrics();
  std::unique_ptr<peer::Dialer<peer::PickProtocol>> pick_;
  std::unique_ptr<peer::Dialer<peer::PrefillProtocol>> prefill_;
  std::unique_ptr<peer::Dialer<peer::DecodeProtocol>> decode_;
  std::unique_ptr<peer::Dialer<peer::WatchProtocol>> watch_;
  peer::StaticAddresses prefill_balancers_{{"pb1", "pb2"}};
  peer::StaticAddresses decode_balancers_{{"db"}};
  std::unique_ptr<GatewayRuntime> runtime_;
  fakes::RecordingSink sink_;
  gateway::CallId call_{};
};

TEST_F(GatewayRuntimeTest, StreamsWhatTheModelSays) {
  p1_.cached_tokens = 8;
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(20);
  EXPECT_EQ(sink_.finished.usage.cached_tokens, 8u);
  EXPECT_EQ(sink_.accepted.seed, 7u);
  EXPECT_EQ(sink_.accepted.prompt_ids.size(), 16u);
  EXPECT_EQ(sink_.text.size(), 20u);
}

TEST_F(GatewayRuntimeTest, OneTokenNeedsNoDecode) {
  Start();
  Send(Request(1));
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(1);
}

TEST_F(GatewayRuntimeTest, NoTokensNeedNoWorker) {
  Start();
  Send(Request(0));
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(0);
  EXPECT_TRUE(p1_.requests.empty());
}

TEST_F(GatewayRuntimeTest, EosEndsTheTextAndIsAnId) {
  world_.oracle.text = "hello";
  Start();
  Send(Request(50));
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(6, FinishReason::kStop);
  EXPECT_EQ(sink_.text, "hello");
  EXPECT_EQ(sink_.ids.back(), fakes::kEos);
}

TEST_F(GatewayRuntimeTest, StopStringEndsTheStreamAtItsLastId) {
  world_.oracle.text = "one two END three";
  d1_.chunk = 4;
  Start();
  auto request = Request(50);
  request.stop = {"END"};
  Send(request);
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(11, FinishReason::kStop);
  EXPECT_EQ(sink_.text, "one two ");
}

TEST_F(GatewayRuntimeTest, StopStringInTheChunkThatReachesTheLengthIsAStop) {
  world_.oracle.text = "abENDxxxxxxxx";
  d1_.chunk = 8;
  Start();
  auto request = Request(8);
  request.stop = {"END"};
  Send(request);
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(5, FinishReason::kStop);
  EXPECT_EQ(sink_.text, "ab");
}

TEST_F(GatewayRuntimeTest, HeldBackTextComesAtTheEnd) {
  world_.oracle.text = "fizz";
  Start();
  auto request = Request(50);
  request.stop = {"zzz"};
  Send(request);
  ASSERT_TRUE(RunToEnd());
  EXPECT_EQ(sink_.text, "fizz");
}

TEST_F(GatewayRuntimeTest, StopStringOfManyBytesIsFoundAcrossIds) {
  world_.oracle.text = "hi \xF0\x9F\x99\x82 there";
  Start();
  auto request = Request(50);
  request.stop = {"\xF0\x9F\x99\x82"};
  Send(request);
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(7, FinishReason::kStop);
  EXPECT_EQ(sink_.text, "hi ");
}

TEST_F(GatewayRuntimeTest, OfTwoStopStringsTheEarlierEndWins) {
  world_.oracle.text = "xabc";
  Start();
  auto request = Request(50);
  request.stop = {"abc", "ab"};
  Send(request);
  ASSERT_TRUE(RunToEnd());
  EXPECT_EQ(sink_.text, "x");
  EXPECT_EQ(sink_.ids.size(), 3u);
}

TEST_F(GatewayRuntimeTest, CharactersOfManyIdsComeWhole) {
  world_.oracle.text = "a\xE6\xBC\xA2\xF0\x9F\x99\x82z";
  Start();
  sink_.on_delta = [this] { EXPECT_TRUE(recipe::IsValidUtf8(sink_.text)) << sink_.text; };
  Send(Request(50));
  ASSERT_TRUE(RunToEnd());
  EXPECT_EQ(sink_.text, world_.oracle.text);
}

TEST_F(GatewayRuntimeTest, CutCharacterIsTheSameInStreamAndWhole) {
  world_.oracle.text = "a\xF0\x9F\x99\x82";
  Start();
  Send(Request(3));
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(3);
  EXPECT_EQ(sink_.text, "a\xEF\xBF\xBD");  // as decoding all ids at once has it
}

TEST_F(GatewayRuntimeTest, PromptsThatEndInsideACharacterLeaveNothing) {
  world_.oracle.text = "next";
  Start();
  auto request = Request(50);
  request.prompt = std::vector<request::TokenId>{'a', 0xF0, 0x9F};
  Send(request);
  ASSERT_TRUE(RunToEnd());
  EXPECT_EQ(sink_.text, "next");
}

TEST_F(GatewayRuntimeTest, WithoutMaxTokensToTheEndOfTheContext) {
  Start();
  auto request = Request();
  request.max_tokens.reset();
  Send(request);
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(1000 - 16);
}

TEST_F(GatewayRuntimeTest, RepeatedTokensAreTakenOnce) {
  d1_.repeats = true;
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(20);
}

TEST_F(GatewayRuntimeTest, SkippedTokenIsAFailureOfTheWorker) {
  d1_.skips = true;
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(20);
  EXPECT_EQ(Reentries("failure"), 1);
  EXPECT_GT(d2_.attached, 0u);
}

struct PrefillCase {
  PrefillPoint point;
  Fault fault;
};
class PrefillDies : public GatewayRuntimeTest, public ::testing::WithParamInterface<PrefillCase> {};

TEST_P(PrefillDies, TheStreamGoesOnElsewhereWithTheSameTokens) {
  p1_.fault_point = GetParam().point;
  p1_.fault = GetParam().fault;
  d1_.pace = Milliseconds(50);  // prefill dies before decode has shown that the hand-over is complete
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(20);
  EXPECT_LE(Reentries("failure"), 1);
  if (Reentries("failure") == 1) {
    EXPECT_EQ(LastExcluded(), std::vector<cluster::Incarnation>{101});
    EXPECT_EQ(p2_.requests.size(), 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryPoint, PrefillDies,
                         ::testing::Values(PrefillCase{PrefillPoint::kArrival, Fault::kClose},
                                           PrefillCase{PrefillPoint::kAccepted, Fault::kClose},
                                           PrefillCase{PrefillPoint::kTarget, Fault::kClose},
                                           PrefillCase{PrefillPoint::kFirstToken, Fault::kClose},
                                           PrefillCase{PrefillPoint::kArrival, Fault::kSilent},
                                           PrefillCase{PrefillPoint::kAccepted, Fault::kSilent},
                                           PrefillCase{PrefillPoint::kTarget, Fault::kSilent},
                                           PrefillCase{PrefillPoint::kArrival, Fault::kStuck},
                                           PrefillCase{PrefillPoint::kAccepted, Fault::kStuck}));

struct DecodeCase {
  uint32_t after;
  Fault fault;
};
class DecodeDies : public GatewayRuntimeTest, public ::testing::WithParamInterface<DecodeCase> {};

TEST_P(DecodeDies, TheStreamGoesOnElsewhereWithTheSameTokens) {
  d1_.fault = GetParam().fault;
  d1_.fault_after = GetParam().after;
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(20);
  EXPECT_EQ(Reentries("failure"), 1);
  ASSERT_FALSE(p1_.requests.empty());
  const peer::PrefillRequest& again = p1_.requests.back();
  EXPECT_EQ(again.excluded_decode, std::vector<cluster::Incarnation>{201});
  EXPECT_EQ(again.generation.prompt_tokens, 16u);
  EXPECT_GE(again.generation.tokens.size(), 16u + GetParam().after);
  EXPECT_EQ(again.generation.sampling.seed, 7u);
}

INSTANTIATE_TEST_SUITE_P(EveryPoint, DecodeDies,
                         ::testing::Values(DecodeCase{0, Fault::kClose}, DecodeCase{1, Fault::kClose},
                                           DecodeCase{10, Fault::kClose}, DecodeCase{18, Fault::kClose},
                                           DecodeCase{0, Fault::kSilent}, DecodeCase{10, Fault::kSilent},
                                           DecodeCase{0, Fault::kStuck}, DecodeCase{10, Fault::kStuck}));

TEST_F(GatewayRuntimeTest, EvictionsDoNotCountAndDoNotExclude) {
  d1_.fault = Fault::kClose;
  d1_.fault_after = 3;
  d1_.faults_left = 5;  // more than the budget
  d1_.status = {Code::kUnavailable, Reason::kKvEvicted, "preempted"};
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(20);
  EXPECT_EQ(Reentries("failure"), 0);
  EXPECT_EQ(Reentries("eviction_or_drain"), 5);
  EXPECT_TRUE(p1_.requests.back().excluded_decode.empty());
}

TEST_F(GatewayRuntimeTest, BudgetSpentIsAnErrorAfterWhatWasGenerated) {
  p1_.fault_point = PrefillPoint::kFirstToken;
  p2_.fault_point = PrefillPoint::kFirstToken;
  p1_.status = p2_.status = {Code::kInternal, "boom"};
  d1_.pace = Seconds(1);
  GatewayOptions options;
  options.rules.failure_budget = 1;
  Start(options);
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFailed(Code::kUnavailable, Reason::kNone);
  EXPECT_EQ(sink_.failed.message(), "The workers of the request were lost. Try again shortly.");
  EXPECT_EQ(sink_.accepts, 1);
  EXPECT_EQ(sink_.ids, Expected(2));
}

TEST_F(GatewayRuntimeTest, NobodyLeftIsAnErrorWithinThreeSeconds) {
  d1_.fault = d2_.fault = Fault::kClose;
  d1_.fault_after = d2_.fault_after = 5;
  Start();
  Send(Request(100));
  ASSERT_TRUE(time_.RunUntil([&] { return sink_.ids.size() >= 10; }, Seconds(10)));
  TimePoint dead = time_.Now();
  ASSERT_TRUE(RunToEnd());
  EXPECT_LE(time_.Now() - Seconds(2) - dead, Seconds(3));
  ExpectFailed(Code::kUnavailable, Reason::kNoInstance);
  EXPECT_EQ(sink_.failed.message(), "No worker is ready for the model. Try again shortly.");
}

TEST_F(GatewayRuntimeTest, RequestsRefusedBeforeAcceptanceFailAtOnce) {
  pb1_.shed = pb2_.shed = Status(Code::kUnavailable, Reason::kOverloaded, "full").WithRetryAfterMs(300);
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd(Milliseconds(500)));
  ExpectFailed(Code::kUnavailable, Reason::kOverloaded);
  EXPECT_EQ(sink_.accepts, 0);
  EXPECT_EQ(sink_.failed.retry_after_ms(), 300u);
}

TEST_F(GatewayRuntimeTest, SilentBalancerIsPassedOver) {
  pb1_.silent_picks = true;
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFinished(20);
  EXPECT_EQ(Reentries("failure"), 0);
}

TEST_F(GatewayRuntimeTest, KilledBalancerIsPassedOver) {
  Start();
  network_.Kill("pb1");
  Send(Request());
  ASSERT_TRUE(RunToEnd(Seconds(1)));
  ExpectFinished(20);
}

TEST_F(GatewayRuntimeTest, WithoutAnyPrefillBalancerTheRequestFailsSoon) {
  Start();
  Send(Request());
  network_.Kill("pb1");
  network_.Kill("pb2");
  ASSERT_TRUE(RunToEnd(Seconds(5)));
  EXPECT_FALSE(sink_.failed.ok());
  ExpectNothingLeft();
}

TEST_F(GatewayRuntimeTest, CancelFreesEverythingAndSaysNothing) {
  Start();
  Send(Request(500));
  ASSERT_TRUE(time_.RunUntil([&] { return sink_.ids.size() >= 5; }, Seconds(10)));
  control_.Post([this] { runtime_->Cancel(call_); });
  time_.Advance(Seconds(1));
  EXPECT_EQ(sink_.ends, 0);
  ExpectNothingLeft();
}

TEST_F(GatewayRuntimeTest, CancelFromInsideADelta) {
  Start();
  sink_.on_delta = [this] {
    if (sink_.ids.size() >= 3) runtime_->Cancel(call_);
  };
  Send(Request(500));
  time_.Advance(Seconds(5));
  EXPECT_EQ(sink_.ends, 0);
  EXPECT_EQ(sink_.ids.size(), 3u);
  ExpectNothingLeft();
}

TEST_F(GatewayRuntimeTest, SmallPromptsDoNotWaitBehindALargeOne) {
  Start();
  large_work_.set_stopped(true);
  fakes::RecordingSink large_sink;
  control_.Post([&] {
    gateway::CompletionRequest large = Request();
    large.large = true;
    runtime_->Start(large, large_sink);
  });
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  EXPECT_EQ(sink_.ids, Expected(20));
  EXPECT_EQ(large_sink.ends, 0);
  large_work_.set_stopped(false);
  ASSERT_TRUE(time_.RunUntil([&] { return large_sink.ends > 0; }, Seconds(60)));
  EXPECT_EQ(large_sink.ids, Expected(20));
  time_.Advance(Seconds(2));
  ExpectNothingLeft();
}

TEST_F(GatewayRuntimeTest, CancelWhileThePromptIsPrepared) {
  Start();
  control_.Post([this] { runtime_->Cancel(runtime_->Start(Request(), sink_)); });
  time_.Advance(Seconds(1));
  EXPECT_EQ(sink_.ends, 0);
  ExpectNothingLeft();
}

TEST_F(GatewayRuntimeTest, BadPromptsNameTheField) {
  Start();
  std::vector<std::pair<gateway::CompletionRequest, std::string>> cases(6, {Request(), ""});
  cases[0].first.prompt = std::vector<request::TokenId>{99999};
  cases[0].second = "prompt";
  cases[1].first.prompt = std::string();
  cases[1].second = "prompt";
  cases[2].first.stop_token_ids = {99999};
  cases[2].second = "stop_token_ids";
  cases[3].first.sampling.logit_bias = {{99999, 1.0f}};
  cases[3].second = "logit_bias";
  cases[4].first.prompt = recipe::Conversation{{{"user", std::vector<std::string>{"x"}, "nobody"}}};
  cases[4].second = "messages";
  cases[5].first.model = "another";
  cases[5].second = "model";
  for (auto& [request, param] : cases) {
    sink_ = {};
    Send(request);
    ASSERT_TRUE(RunToEnd());
    EXPECT_EQ(sink_.failed.param(), param) << sink_.failed.ToString();
    EXPECT_EQ(sink_.accepts, 0);
  }
  EXPECT_TRUE(p1_.requests.empty());
}

TEST_F(GatewayRuntimeTest, PromptThatLeavesNoRoom) {
  Start();
  for (size_t length : {1000u, 5000u, 50'000'000u}) {
    sink_ = {};
    auto request = Request();
    request.prompt = std::string(length, 'x');
    Send(request);
    ASSERT_TRUE(RunToEnd());
    ExpectFailed(Code::kInvalidArgument, Reason::kContextLengthExceeded);
  }
  sink_ = {};
  auto request = Request(50);
  request.prompt = std::string(999, 'x');
  Send(request);
  ASSERT_TRUE(RunToEnd());
  EXPECT_EQ(sink_.ids.size(), 1u);  // clamped
}

// Rendering 100,000 short messages took seconds, in which no other request was prepared.
TEST_F(GatewayRuntimeTest, MoreMessagesThanContextAreRefusedUnrendered) {
  Start();
  auto request = Request();
  // The template refuses this name when it is rendered.
  request.prompt =
      recipe::Conversation{std::vector<recipe::Message>(1000, {"user", std::vector<std::string>{"x"}, "nobody"})};
  Send(request);
  ASSERT_TRUE(RunToEnd());
  ExpectFailed(Code::kInvalidArgument, Reason::kContextLengthExceeded);
}

TEST_F(GatewayRuntimeTest, ReadyNeedsBothRolesOfOneLayout) {
  Start();
  EXPECT_EQ(runtime_->Models().front().context_tokens, 1000u);
  db_.Publish({{{{fakes::kModel, "another layout", 1000, fakes::kModelDigest}, 1}}, {}});
  time_.Advance(Milliseconds(10));
  EXPECT_FALSE(runtime_->Ready());
  EXPECT_EQ(runtime_->CheckModel(fakes::kModel).reason(), Reason::kNoInstance);
  EXPECT_EQ(runtime_->CheckModel("another").reason(), Reason::kModelNotFound);
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  ExpectFailed(Code::kUnavailable, Reason::kNoInstance);
  db_.Publish({{{{fakes::kModel, "layout", 500, fakes::kModelDigest}, 2}}, {}});
  time_.Advance(Milliseconds(10));
  EXPECT_TRUE(runtime_->Ready());
  EXPECT_EQ(runtime_->Models().front().context_tokens, 500u);
}

TEST_F(GatewayRuntimeTest, WorkersOfAnotherModelFileOfTheSameNameAreNotUsed) {
  Start();
  for (auto* balancer : {&pb1_, &pb2_, &db_}) balancer->Publish({{{{fakes::kModel, "layout", 1000, "other"}, 1}}, {}});
  time_.Advance(Milliseconds(10));
  EXPECT_FALSE(runtime_->Ready());
  const Status refused = runtime_->CheckModel(fakes::kModel);
  EXPECT_EQ(refused.reason(), Reason::kNoInstance);
  EXPECT_NE(refused.message().find("another file"), std::string::npos) << refused.message();
}

TEST_F(GatewayRuntimeTest, PicksNameTheModelFile) {
  Start();
  Send(Request());
  ASSERT_TRUE(RunToEnd());
  for (const auto* balancer : {&pb1_, &pb2_}) {
    for (const peer::PickRequest& pick : balancer->picks) EXPECT_EQ(pick.model_digest, fakes::kModelDigest);
  }
  EXPECT_EQ(pb1_.picks.size() + pb2_.picks.size(), 1u);
}

TEST_F(GatewayRuntimeTest, BalancerThatDiesIsWatchedAgain) {
  Start();
  network_.Kill("db");
  time_.Advance(Seconds(1));
  EXPECT_FALSE(runtime_->Ready());
  network_.Serve<peer::WatchProtocol>("db", world_.executor, db_);
  ASSERT_TRUE(time_.RunUntil([this] { return runtime_->Ready(); }, Seconds(5)));
}

TEST_F(GatewayRuntimeTest, SeedIsDrawnWhenMissing) {
  Start();
  auto request = Request();
  request.seed.reset();
  Send(request);
  ASSERT_TRUE(RunToEnd());
  EXPECT_NE(sink_.accepted.seed, 0u);
  EXPECT_EQ(p1_.requests.back().generation.sampling.seed, sink_.accepted.seed);
}

TEST_F(GatewayRuntimeTest, ReentriesAtOnceAreBounded) {
  d1_.fault = Fault::kClose;
  d1_.fault_after = 5;
  d1_.faults_left = 12;
  GatewayOptions options;
  options.most_reentries_at_once = 2;
  Start(options);
  std::vector<fakes::RecordingSink> sinks(12);
  control_.Post([&] {
    for (auto& sink : sinks) runtime_->Start(Request(), sink);
  });
  Gauge& at_once = metrics_->AddGauge("millrace_gateway_reentries_active", "");
  double most = 0;
  auto all_ended = [&] {
    most = std::max(most, at_once.Value());
    return std::all_of(sinks.begin(), sinks.end(), [](const auto& sink) { return sink.ends == 1; });
  };
  ASSERT_TRUE(time_.RunUntil(all_ended, Seconds(60)));
  EXPECT_EQ(most, 2);
  for (auto& sink : sinks) EXPECT_EQ(sink.ids, Expected(20));
  time_.Advance(Seconds(1));
  ExpectNothingLeft();
}

// Every seed is another interleaving of the executors, with another pattern of deaths.
TEST_F(GatewayRuntimeTest, ManyStreamsThroughRandomDeathsKeepTheirTokens) {
  GatewayOptions options;
  options.rules.failure_budget = 50;
  Start(options);
  Rng rng(99);
  std::vector<fakes::RecordingSink> sinks(40);
  control_.Post([&] {
    for (auto& sink : sinks) runtime_->Start(Request(30), sink);
  });
  auto all_ended = [&] {
    return std::all_of(sinks.begin(), sinks.end(), [](const auto& sink) { return sink.ends == 1; });
  };
  for (int round = 0; round < 200 && !all_ended(); ++round) {
    bool first = rng.Below(2) == 0;
    (first ? d1_ : d2_).fault = rng.Below(3) == 0 ? Fault::kClose : Fault::kNone;
    (first ? d1_ : d2_).fault_after = static_cast<uint32_t>(rng.Below(10));
    (first ? d1_ : d2_).status = {Code::kUnavailable, Reason::kKvEvicted, "preempted"};
    (first ? p1_ : p2_).fault_point = rng.Below(3) == 0 ? PrefillPoint::kFirstToken : PrefillPoint::kNever;
    (first ? p1_ : p2_).status = {Code::kUnavailable, Reason::kDraining, "leaving"};
    time_.Advance(Milliseconds(20));
    d1_.fault = d2_.fault = Fault::kNone;
    p1_.fault_point = p2_.fault_point = PrefillPoint::kNever;
  }
  time_.RunUntil(all_ended, Seconds(60));
  for (auto& sink : sinks) {
    EXPECT_EQ(sink.ends, 1);
    EXPECT_EQ(sink.late_events, 0);
    if (sink.failed.ok()) {
      EXPECT_EQ(sink.ids, Expected(30));
    } else {
      // Both prefill instances were excluded as leaving; what was given is still right.
      EXPECT_EQ(sink.failed.reason(), Reason::kNoInstance) << sink.failed.ToString();
      EXPECT_EQ(sink.ids, Expected(static_cast<uint32_t>(sink.ids.size())));
    }
  }
  time_.Advance(Seconds(1));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace millrace::runtime
