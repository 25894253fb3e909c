#include "common/transfer/transports/transports.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace::transfer {
namespace {

TEST(Transports, NamesAreUniqueAndMake) {
  std::set<std::string_view> names;
  for (const TransportDescriptor* descriptor : All()) {
    EXPECT_TRUE(names.insert(descriptor->name).second) << descriptor->name;
    EXPECT_FALSE(descriptor->help.empty());
    EXPECT_FALSE(descriptor->variants.empty());
    auto transport = MakeTransport(descriptor->name, {});
    ASSERT_TRUE(transport.ok()) << transport.status().ToString();
    EXPECT_FALSE((*transport)->address().empty());
    EXPECT_LE((*transport)->address().size(), 4096u);
  }
}

TEST(Transports, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const Status status = MakeTransport("pigeon", {}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  for (const TransportDescriptor* descriptor : All()) {
    EXPECT_NE(status.message().find(descriptor->name), std::string::npos);
  }
}

TEST(Transports, WrongOptionsAreRefusedWithTheOptionNamed) {
  for (const TransportDescriptor* descriptor : All()) {
    const Status lanes = MakeTransport(descriptor->name, {.lanes = "^tcp"}).status();
    EXPECT_EQ(lanes.code(), Code::kInvalidArgument) << descriptor->name;
    EXPECT_EQ(lanes.param(), "lanes");
    const Status pending = MakeTransport(descriptor->name, {.max_pending = 0}).status();
    EXPECT_EQ(pending.code(), Code::kInvalidArgument) << descriptor->name;
    EXPECT_EQ(pending.param(), "max_pending");
    EXPECT_FALSE(MakeTransport(descriptor->name, {.devices = "no-such-device0"}).ok()) << descriptor->name;
  }
}

}  // namespace
}  // namespace millrace::transfer
