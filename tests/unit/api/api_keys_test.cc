#include "common/api/api_keys.h"

#include <gtest/gtest.h>

namespace millrace::api {
namespace {

http::Request With(std::vector<http::Header> headers) {
  http::Request request;
  request.headers = std::move(headers);
  return request;
}

TEST(ApiKeys, WithoutKeysEverybodyIsOneTenant) { EXPECT_EQ(*ApiKeys().Check(With({})), ""); }

TEST(ApiKeys, BearerAndXApiKeyGiveTheSameTenant) {
  auto keys = ApiKeys::Parse("# ours\nalpha\r\n\n beta \n");
  ASSERT_TRUE(keys.ok());
  auto a = keys->Check(With({{"authorization", "Bearer alpha"}}));
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(*a, *keys->Check(With({{"x-api-key", "alpha"}})));
  EXPECT_EQ(*a, *keys->Check(With({{"authorization", "bEARER  alpha"}})));
  EXPECT_NE(*a, *keys->Check(With({{"x-api-key", "beta"}})));
}

TEST(ApiKeys, MissingAndWrongKeysAreRefused) {
  auto keys = ApiKeys::Parse("alpha");
  for (const auto& headers : std::vector<std::vector<http::Header>>{
           {}, {{"authorization", "Bearer wrong"}}, {{"authorization", "Basic alpha"}}, {{"x-api-key", "alph"}}}) {
    EXPECT_EQ(keys->Check(With(headers)).status().code(), Code::kUnauthenticated);
  }
}

TEST(ApiKeys, AFileWithoutKeysOpensNothing) {
  EXPECT_FALSE(ApiKeys::Parse("# nothing\n").ok());
  EXPECT_FALSE(ApiKeys::Load("/nonexistent/keys").ok());
}

}  // namespace
}  // namespace millrace::api
