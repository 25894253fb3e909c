#include "services/cli/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// 192.0.2.0/24 is for documentation: no machine has such an address.
TEST(CheckListenTest, AnAddressOfAnotherMachineIsBlamedOnHostWithAnyPort) {
  for (const uint16_t port : {0, 8080}) {
    const Status status = CheckListen("192.0.2.1", port);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("--host 192.0.2.1 is not an address of this machine"));
    EXPECT_THAT(status.message(), Not(HasSubstr("admin")));
  }
}

TEST(CheckListenTest, LoopbackIsAnAddressOfThisMachine) { EXPECT_TRUE(CheckListen("127.0.0.1", 0).ok()); }

}  // namespace
}  // namespace millrace::cli
