#include "services/shell/transport_flags.h"

#include <gtest/gtest.h>

namespace millrace::shell {
namespace {

Status Parse(TransportFlags& flags, const std::string& argument) {
  config::Schema schema("p", "[flags]", "A process.");
  flags.Describe(schema);
  return schema.Parse({argument}, [](const char*) -> const char* { return nullptr; }).status();
}

TEST(TransportFlags, ATransportWithinOneProcessIsNeitherOfferedNorTaken) {
  TransportFlags flags;
  config::Schema schema("p", "[flags]", "A process.");
  flags.Describe(schema);
  EXPECT_EQ(schema.Help().find("within one process"), std::string::npos) << schema.Help();
  EXPECT_NE(schema.Help().find("ucx"), std::string::npos);
  const Status status = Parse(flags, "--transport=loopback");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("ucx"), std::string::npos) << status.ToString();
}

TEST(TransportFlags, LanesThatDoNotExistNameTheFlag) {
  TransportFlags flags;
  ASSERT_TRUE(Parse(flags, "--transport-lanes=bogus").ok());
  const Status status = flags.Make(true).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
  EXPECT_EQ(status.reason(), Reason::kBadValue);
  EXPECT_EQ(status.param(), "transport-lanes");
  EXPECT_NE(status.message().find("--transport-lanes"), std::string::npos) << status.message();
}

TEST(TransportFlags, DefaultsWorkOnLoopback) { EXPECT_TRUE(TransportFlags().Make(true).ok()); }

}  // namespace
}  // namespace millrace::shell
