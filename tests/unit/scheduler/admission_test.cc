#include "common/scheduler/admission.h"

#include <gtest/gtest.h>

namespace millrace::scheduler {
namespace {

TEST(AdmissionTest, RefusesBeyondEitherBoundWithTimeToComeBack) {
  const QueueLimits limits{4, 1000};
  EXPECT_TRUE(AdmitToQueue(limits, {3, 100, 0}, 900).ok());
  const Status tokens = AdmitToQueue(limits, {3, 800, 400}, 201);
  EXPECT_EQ(tokens.reason(), Reason::kOverloaded);
  EXPECT_EQ(tokens.retry_after_ms(), 1000u);
  const Status requests = AdmitToQueue(limits, {4, 4, 1e9}, 1);
  EXPECT_EQ(requests.code(), Code::kResourceExhausted);
  EXPECT_EQ(requests.retry_after_ms(), 100u);
  EXPECT_EQ(AdmitToQueue(limits, {4, 4, 0}, 1).retry_after_ms(), 1000u);
}

TEST(AdmissionTest, RequestLongerThanTheQueueWaitsAlone) {
  const QueueLimits limits{4, 1000};
  EXPECT_TRUE(AdmitToQueue(limits, {0, 0, 0}, 5000).ok());
  EXPECT_FALSE(AdmitToQueue(limits, {1, 5000, 0}, 1).ok());
}

}  // namespace
}  // namespace millrace::scheduler
