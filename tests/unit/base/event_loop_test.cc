#include "common/base/event_loop.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

namespace millrace {
namespace {

TEST(EventLoopTest, RunsTasksInOrderOnOneThread) {
  EventLoop loop("test");
  std::vector<int> order;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) loop.Post([&order, i] { order.push_back(i); });
  loop.Post([&] { done.set_value(); });
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(EventLoopTest, TimersFireInOrderAndCancelledOnesNever) {
  EventLoop loop("test");
  std::promise<std::vector<int>> done;
  auto order = std::make_shared<std::vector<int>>();
  loop.Post([&, order] {
    const TimePoint now = loop.Now();
    loop.PostAt(now + Milliseconds(3), [&, order] {
      order->push_back(3);
      done.set_value(*order);
    });
    loop.PostAt(now + Milliseconds(1), [order] { order->push_back(1); });
    const TimerId cancelled = loop.PostAt(now + Milliseconds(2), [order] { order->push_back(2); });
    loop.Cancel(cancelled);
    loop.Cancel(cancelled);
    loop.Cancel(TimerId::kNone);
  });
  EXPECT_EQ(done.get_future().get(), (std::vector<int>{1, 3}));
}

TEST(EventLoopTest, StopRunsWhatWasPostedAndDropsLaterTasks) {
  int ran = 0;
  EventLoop loop("test");
  for (int i = 0; i < 10; ++i) loop.Post([&] { ++ran; });
  loop.Stop();
  EXPECT_EQ(ran, 10);
  loop.Post([&] { ++ran; });
  loop.Stop();
  EXPECT_EQ(ran, 10);
}

TEST(EventLoopTest, TaskIsDestroyedBeforeTheNextRuns) {
  EventLoop loop("test");
  auto token = std::make_shared<int>(1);
  std::promise<long> uses;
  loop.Post([token] {});
  loop.Post([&, weak = std::weak_ptr(token)] { uses.set_value(weak.use_count()); });
  EXPECT_EQ(uses.get_future().get(), 1);
}

TEST(ManualExecutorTest, TimeMovesOnlyByAdvance) {
  ManualExecutor executor;
  std::vector<int> order;
  executor.PostAfter(Milliseconds(20), [&] { order.push_back(2); });
  executor.PostAfter(Milliseconds(10), [&] {
    order.push_back(1);
    executor.PostAfter(Milliseconds(5), [&] { order.push_back(15); });
    executor.Post([&] { order.push_back(11); });
  });
  executor.Advance(Milliseconds(9));
  EXPECT_TRUE(order.empty());
  executor.Advance(Milliseconds(11));
  EXPECT_EQ(order, (std::vector<int>{1, 11, 15, 2}));
}

TEST(NextBeatTest, IsTheNextMultipleAndNeverNow) {
  EXPECT_EQ(NextBeat(TimePoint(Milliseconds(1001)), Milliseconds(250)), TimePoint(Milliseconds(1250)));
  EXPECT_EQ(NextBeat(TimePoint(Milliseconds(1249)), Milliseconds(250)), TimePoint(Milliseconds(1250)));
  EXPECT_EQ(NextBeat(TimePoint(Milliseconds(1250)), Milliseconds(250)), TimePoint(Milliseconds(1500)));
}

}  // namespace
}  // namespace millrace
