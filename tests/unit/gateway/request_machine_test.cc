#include "common/gateway/request_machine.h"

#include <gtest/gtest.h>

#include "common/gateway/error_table.h"

namespace millrace::gateway {
namespace {

using request::FinishReason;
using request::TokenId;

const Status kLost{Code::kUnavailable, Reason::kPeerLost, "lost"};

class RequestMachineTest : public ::testing::Test {
 protected:
  RequestMachineTest() {
    generation_.tokens = {1, 2, 3};
    generation_.prompt_tokens = 3;
    generation_.max_new_tokens = 10;
    generation_.stop_ids = {99};
  }
  RequestMachine& machine() {
    if (!machine_) machine_.emplace(rules_, generation_, 1, now_);
    return *machine_;
  }
  // The names of the actions, in order; the actions themselves are in last_.
  std::string Step(const Event& event) {
    last_ = machine().Step(event, now_);
    static const char* const kNames[] = {"AskSlot",   "FreeSlot",     "OpenPick",    "OpenPrefill", "OpenDecode",
                                         "ClosePick", "ClosePrefill", "CloseDecode", "Accept",      "Emit",
                                         "Reenter",   "Finish",       "Fail"};
    std::string names;
    for (const Action& action : last_) names += (names.empty() ? "" : " ") + std::string(kNames[action.index()]);
    return names;
  }
  template <class T>
  const T& Last() {
    return std::get<T>(last_.back());
  }
  void ToPrefill() {
    Step(event::Begin{});
    Step(event::Picked{"p1", 11});
    Step(event::PrefillAccepted{});
  }
  void ToDecode() {
    ToPrefill();
    Step(event::DecodeTarget{"d1", 21, "s"});
    Step(event::FirstToken{50, 2, FinishReason::kNone});
    Step(event::PrefillClosed{OkStatus()});
  }
  // Lets the backoff pass and the slot be granted.
  std::string EnterAgain() {
    now_ = machine().deadline();
    EXPECT_EQ(Step(event::Timer{}), "AskSlot");
    return Step(event::SlotGranted{});
  }

  RequestRules rules_;
  request::Generation generation_;
  TimePoint now_{Seconds(100)};
  std::optional<RequestMachine> machine_;
  Actions last_;
};

TEST_F(RequestMachineTest, WholeLife) {
  EXPECT_EQ(Step(event::Begin{}), "OpenPick");
  EXPECT_EQ(Step(event::Picked{"p1", 11}), "ClosePick OpenPrefill");
  EXPECT_EQ(Last<action::OpenPrefill>().incarnation, 11u);
  EXPECT_EQ(Step(event::PrefillAccepted{}), "Accept");
  EXPECT_EQ(Step(event::DecodeTarget{"d1", 21, "s"}), "OpenDecode");
  EXPECT_EQ(Last<action::OpenDecode>().from, 0u);
  EXPECT_EQ(Step(event::FirstToken{50, 2, FinishReason::kNone}), "Emit");
  EXPECT_EQ(Step(event::Tokens{0, {50, 51}}), "Emit");
  EXPECT_EQ(Last<action::Emit>().token, 51);
  EXPECT_EQ(Step(event::PrefillClosed{OkStatus()}), "");
  EXPECT_EQ(Step(event::Tokens{2, {52, 99}}), "Emit Emit CloseDecode Finish");
  EXPECT_EQ(Last<action::Finish>().reason, FinishReason::kStop);
  EXPECT_TRUE(machine().done());
  EXPECT_EQ(machine().deadline(), kNever);
  EXPECT_EQ(Step(event::DecodeClosed{kLost}), "");
}

TEST_F(RequestMachineTest, ReentryCarriesWhatWasGeneratedAndExcludesTheDead) {
  ToDecode();
  Step(event::Tokens{1, {51, 52}});
  EXPECT_EQ(Step(event::DecodeClosed{kLost}), "Reenter");
  EXPECT_EQ(EnterAgain(), "OpenPick");
  Step(event::Picked{"p1", 11});
  EXPECT_EQ(Last<action::OpenPrefill>().excluded_decode, std::vector<cluster::Incarnation>{21});
  EXPECT_EQ(machine().generation().tokens, (std::vector<TokenId>{1, 2, 3, 50, 51, 52}));
  EXPECT_EQ(machine().generation().prompt_tokens, 3u);
  EXPECT_EQ(Step(event::PrefillAccepted{}), "FreeSlot");  // accepted once only
  Step(event::DecodeTarget{"d2", 22, "s2"});
  EXPECT_EQ(Last<action::OpenDecode>().from, 3u);
  Step(event::FirstToken{53, 64, FinishReason::kNone});
  EXPECT_EQ(machine().cached_tokens(), 2u);  // of the first attempt
}

TEST_F(RequestMachineTest, BackoffsGrowAndAreJittered) {
  rules_.failure_budget = 10;
  ToPrefill();
  Duration last{0};
  for (int i = 0; i < 4; ++i) {
    Step(event::PrefillClosed{kLost});
    Duration delay = machine().deadline() - now_;
    Duration nominal = rules_.backoff * (1 << i);
    EXPECT_GE(delay, nominal / 2);
    EXPECT_LE(delay, nominal * 3 / 2);
    EXPECT_NE(delay, last);
    last = delay;
    EnterAgain();
    Step(event::Picked{"p", 100u + static_cast<unsigned>(i)});
  }
}

TEST_F(RequestMachineTest, ASpentBudgetIsUnavailableWhateverWorkersSaidLast) {
  for (const Status& cause : {kLost, Status(Code::kInternal, "boom"), Status(Code::kDataLoss, Reason::kKvCorrupt, "x"),
                              Status(Code::kUnavailable, Reason::kDeadline, "slow")}) {
    rules_.failure_budget = 0;
    ToPrefill();
    EXPECT_EQ(Step(event::PrefillClosed{cause}), "Fail");
    EXPECT_EQ(FindErrorRow(Last<action::Fail>().status).http_status, 503);
    EXPECT_STREQ(FindErrorRow(Last<action::Fail>().status).code, "service_unavailable");
    EXPECT_EQ(Last<action::Fail>().status.message(), "gave up after 1 attempts: " + cause.message());
    machine_.reset();
  }
}

TEST_F(RequestMachineTest, DecodeThatDiesDuringTheHandOverMayBeReplacedByPrefill) {
  ToPrefill();
  Step(event::DecodeTarget{"d1", 21, "s"});
  EXPECT_EQ(Step(event::DecodeClosed{kLost}), "");
  EXPECT_EQ(Step(event::DecodeTarget{"d2", 22, "s2"}), "OpenDecode");
  EXPECT_EQ(machine().reentries(), 0u);
  now_ += rules_.redirect_timeout * 2;
  EXPECT_EQ(Step(event::Timer{}), "");  // the deadline went with the new target
}

TEST_F(RequestMachineTest, NoReplacementInTimeEntersAgain) {
  ToPrefill();
  Step(event::DecodeTarget{"d1", 21, "s"});
  Step(event::DecodeClosed{kLost});
  now_ = machine().deadline();
  EXPECT_EQ(Step(event::Timer{}), "ClosePrefill Reenter");
}

TEST_F(RequestMachineTest, MovedDecodeTargetReplacesTheOldOne) {
  ToPrefill();
  Step(event::DecodeTarget{"d1", 21, "s"});
  EXPECT_EQ(Step(event::DecodeTarget{"d2", 22, "s2"}), "CloseDecode OpenDecode");
}

TEST_F(RequestMachineTest, PrefillThatDiesAfterTheHandOverIsNoLoss) {
  ToPrefill();
  Step(event::DecodeTarget{"d1", 21, "s"});
  Step(event::FirstToken{50, 0, FinishReason::kNone});
  Step(event::Tokens{1, {51}});  // decode goes on by itself
  EXPECT_EQ(Step(event::PrefillClosed{kLost}), "");
  EXPECT_EQ(Step(event::Tokens{2, {99}}), "Emit CloseDecode Finish");
}

TEST_F(RequestMachineTest, ShedBeforeAcceptanceFailsAtOnce) {
  Step(event::Begin{});
  EXPECT_EQ(Step(event::PickFailed{{Code::kUnavailable, Reason::kOverloaded, "full"}}), "Fail");
}

TEST_F(RequestMachineTest, ShedAfterAcceptanceIsWaitedOut) {
  ToDecode();
  Step(event::DecodeClosed{kLost});
  EnterAgain();
  TimePoint first = now_;
  while (Step(event::PickFailed{{Code::kUnavailable, Reason::kOverloaded, "full"}}) == "FreeSlot") EnterAgain();
  EXPECT_GE(now_ - first, rules_.overload_patience);
  EXPECT_EQ(Last<action::Fail>().status.reason(), Reason::kOverloaded);
}

TEST_F(RequestMachineTest, AnswersThatBlameTheRequestAreFinal) {
  ToPrefill();
  EXPECT_EQ(Step(event::PrefillClosed{InvalidArgument("no")}), "Fail");
}

TEST_F(RequestMachineTest, StopStringDropsWhatCameAfterIt) {
  ToDecode();
  Step(event::Tokens{1, {51, 52, 53}});
  EXPECT_EQ(Step(event::StopString{2}), "CloseDecode Finish");
  EXPECT_EQ(machine().generated(), 2u);
}

TEST_F(RequestMachineTest, CancelClosesEverythingSilently) {
  ToPrefill();
  Step(event::DecodeTarget{"d1", 21, "s"});
  EXPECT_EQ(Step(event::Cancel{}), "ClosePrefill CloseDecode");
  EXPECT_TRUE(machine().done());
}

TEST_F(RequestMachineTest, RequestsDoNotLiveForever) {
  ToDecode();
  now_ += rules_.request_timeout;
  EXPECT_EQ(Step(event::Timer{}), "CloseDecode Fail");
  EXPECT_EQ(Last<action::Fail>().status.reason(), Reason::kDeadline);
}

TEST_F(RequestMachineTest, NobodyAcceptsInTime) {
  Step(event::Begin{});
  now_ = machine().deadline();
  EXPECT_EQ(Step(event::Timer{}), "ClosePick Fail");
  EXPECT_EQ(Last<action::Fail>().status.reason(), Reason::kOverloaded);
}

// Whatever comes in whatever order: one end, every opened stage closed, no id twice or out of order.
class RandomLife {
 public:
  RandomLife(uint64_t seed, const RequestRules& rules, const request::Generation& generation, TimePoint now)
      : rules_(rules), rng_(seed), now_(now), machine_(rules, generation, seed, now) {}

  void Live() {
    Run(event::Begin{});
    for (int i = 0; i < 400 && !machine_.done(); ++i) OneEvent();
    now_ += rules_.request_timeout;
    Run(event::Timer{});
    EXPECT_EQ(ends_, 1);
    EXPECT_FALSE(pick_ || prefill_ || decode_);
  }

 private:
  void OneEvent() {
    const Status ends[] = {OkStatus(),
                           kLost,
                           {Code::kUnavailable, Reason::kKvEvicted, "e"},
                           {Code::kUnavailable, Reason::kOverloaded, "o"},
                           Internal("i")};
    const Status& status = ends[rng_.Below(5)];
    now_ += Milliseconds(static_cast<int64_t>(rng_.Below(400)));
    if (now_ >= machine_.deadline()) Run(event::Timer{});
    uint64_t what = rng_.Below(8);
    if (what == 0) Run(event::SlotGranted{});
    if (pick_ && what <= 2) {
      Run(event::Picked{"p", 1 + rng_.Below(5)});
    } else if (pick_ && what == 3) {
      Run(event::PickFailed{status.ok() ? kLost : status}, &pick_);
    } else if (prefill_ && what == 4) {
      Run(event::PrefillAccepted{});
    } else if (prefill_ && what == 5) {
      Run(event::DecodeTarget{"d", 1 + rng_.Below(5), "s"});
    } else if (prefill_ && what == 6) {
      Run(event::FirstToken{5, 0, FinishReason::kNone});
    } else if (prefill_ && what == 7) {
      Run(event::PrefillClosed{status}, &prefill_);
    }
    if (decode_ && what <= 4)
      Run(event::Tokens{static_cast<uint32_t>(rng_.Below(machine_.generated() + 2)), {7, 8, 9}});
    if (decode_ && what == 5) Run(event::DecodeClosed{status}, &decode_);
  }
  // `closed`: the stage whose stream ended by itself with this event.
  void Run(const Event& event, bool* closed = nullptr) {
    if (closed != nullptr) *closed = false;
    for (const Action& action : machine_.Step(event, now_)) {
      EXPECT_EQ(ends_, 0);
      Track<action::OpenPick, action::ClosePick>(action, pick_);
      Track<action::OpenPrefill, action::ClosePrefill>(action, prefill_);
      Track<action::OpenDecode, action::CloseDecode>(action, decode_);
      emitted_ += std::holds_alternative<action::Emit>(action);
      ends_ += std::holds_alternative<action::Finish>(action) + std::holds_alternative<action::Fail>(action);
    }
    EXPECT_EQ(emitted_, machine_.generated());
  }
  template <class Open, class Close>
  void Track(const Action& action, bool& open) {
    if (std::holds_alternative<Open>(action)) {
      EXPECT_FALSE(open);
      open = true;
    } else if (std::holds_alternative<Close>(action)) {
      open = false;
    }
  }

  const RequestRules rules_;
  Rng rng_;
  TimePoint now_;
  RequestMachine machine_;
  bool pick_ = false;
  bool prefill_ = false;
  bool decode_ = false;
  int ends_ = 0;
  uint32_t emitted_ = 0;
};

TEST_F(RequestMachineTest, RandomEventsKeepTheRules) {
  for (uint64_t seed = 0; seed < 500 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomLife(seed, rules_, generation_, now_).Live();
  }
}

}  // namespace
}  // namespace millrace::gateway
