#include "common/gateway/error_table.h"

#include <gtest/gtest.h>

namespace millrace::gateway {
namespace {

TEST(ErrorTable, ClientMistakesAreNeverRetriedAndServerErrorsNever4xx) {
  for (int code = 1; code <= 16; ++code) {
    for (int reason = 0; reason <= 15; ++reason) {
      const ErrorRow row = FindErrorRow({static_cast<Code>(code), static_cast<Reason>(reason), "x"});
      EXPECT_GE(row.http_status, 400);
      EXPECT_LT(row.http_status, 600);
      bool clients_fault = row.http_status < 500 && row.http_status != 429;
      bool lost_session = static_cast<Reason>(reason) == Reason::kNone && static_cast<Code>(code) == Code::kNotFound;
      EXPECT_TRUE(!clients_fault || lost_session || row.retry == RetryClass::kNever) << code << " " << reason;
      EXPECT_STREQ(row.type, row.http_status == 429   ? "rate_limit_error"
                             : row.http_status >= 500 ? "server_error"
                                                      : "invalid_request_error");
    }
  }
}

TEST(ErrorTable, AServiceThatIsUnavailableIsNotAnInternalError) {
  for (int code = 1; code <= 16; ++code) {
    for (int reason = 0; reason <= 15; ++reason) {
      const ErrorRow row = FindErrorRow({static_cast<Code>(code), static_cast<Reason>(reason), "x"});
      if (row.http_status == 503) {
        EXPECT_STRNE(row.code, "internal_error") << code << " " << reason;
      }
    }
  }
  EXPECT_STREQ(FindErrorRow({Code::kUnavailable, "gave up"}).code, "service_unavailable");
  EXPECT_STREQ(FindErrorRow({Code::kUnavailable, Reason::kPeerLost, ""}).code, "service_unavailable");
}

TEST(ErrorTable, ReasonsComeBeforeCodes) {
  EXPECT_EQ(FindErrorRow({Code::kUnavailable, Reason::kOverloaded, ""}).http_status, 429);
  EXPECT_EQ(FindErrorRow({Code::kResourceExhausted, Reason::kOverloaded, ""}).retry, RetryClass::kLater);
  EXPECT_EQ(FindErrorRow({Code::kUnavailable, Reason::kKvEvicted, ""}).retry, RetryClass::kElsewhereFree);
  EXPECT_EQ(FindErrorRow({Code::kUnavailable, Reason::kPeerLost, ""}).retry, RetryClass::kElsewhere);
  EXPECT_STREQ(FindErrorRow({Code::kInvalidArgument, Reason::kContextLengthExceeded, ""}).code,
               "context_length_exceeded");
}

TEST(ErrorTable, AClientIsNotShownWhatOnlyTheClusterKnows) {
  for (int code = 1; code <= 16; ++code) {
    for (int reason = 0; reason <= 15; ++reason) {
      const Status inside = Status(static_cast<Code>(code), static_cast<Reason>(reason), "layout 9245d18c");
      const Status plain = ForClient(inside);
      EXPECT_EQ(plain.code(), inside.code());
      EXPECT_EQ(plain.reason(), inside.reason());
      const bool keeps_text = FindErrorRow(inside).http_status < 500 && FindErrorRow(inside).http_status != 429 &&
                              inside.reason() != Reason::kModelNotFound;
      EXPECT_EQ(plain.message() == inside.message(), keeps_text) << code << " " << reason;
    }
  }
  Status lost(Code::kUnavailable, Reason::kNoInstance,
              "decode balancer: no decode instance is left for any model with layout 9245d18cc560");
  lost.WithRetryAfterMs(500);
  EXPECT_EQ(ForClient(lost).message(), "No worker is ready for the model. Try again shortly.");
  EXPECT_EQ(ForClient(lost).retry_after_ms(), 500u);
}

}  // namespace
}  // namespace millrace::gateway
