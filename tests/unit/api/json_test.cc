#include "common/api/json.h"

#include <gtest/gtest.h>

namespace millrace::api {
namespace {

TEST(Json, KeepsValuesAndTakesTheLastOfARepeatedKey) {
  auto json = ParseJson(R"({"a":1,"b":[true,null,"x\u00e9",2.5,-7],"a":9223372036854775807})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(std::get<int64_t>(json->Find("a")->value), INT64_MAX);
  const JsonArray& b = *json->Find("b")->array();
  EXPECT_TRUE(*b[0].boolean());
  EXPECT_TRUE(b[1].is_null());
  EXPECT_EQ(*b[2].text(), "x\xC3\xA9");
  EXPECT_EQ(std::get<double>(b[3].value), 2.5);
  EXPECT_EQ(std::get<int64_t>(b[4].value), -7);
  EXPECT_EQ(json->Find("c"), nullptr);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (std::string text : {"",
                           "{",
                           "{\"a\":",
                           "[1,]",
                           "nul",
                           "{\"a\":1} x",
                           "NaN",
                           "[Infinity]",
                           "[-Infinity]",
                           "{a:1}",
                           "'x'",
                           "[1e999]",
                           "\"\\ud83d\"",
                           "\"\\udc00\"",
                           "\"\xFF\"",
                           "\"\xC0\xAF\"",
                           "\"\xED\xA0\x80\"",
                           "\"\n\"",
                           "01",
                           "[1] [2]",
                           "/**/1"}) {
    auto json = ParseJson(text);
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.status().code(), Code::kInvalidArgument);
  }
}

TEST(Json, NulIsText) {
  auto json = ParseJson(R"(["a\u0000b"])");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->array()->front().text()->size(), 3u);
}

TEST(Json, DeepNestingIsRefusedWithoutRecursion) {
  EXPECT_FALSE(ParseJson(std::string(5'000'000, '[')).ok());
  EXPECT_TRUE(ParseJson(std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(kMaxJsonDepth + 1, '[') + std::string(kMaxJsonDepth + 1, ']')).ok());
}

TEST(Json, TooManyValuesAreRefused) {
  std::string text = "[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_FALSE(ParseJson(text + "]").ok());
}

TEST(Json, OverflowNamesTheFieldButNotAStrangersKey) {
  EXPECT_EQ(ParseJson(R"({"temperature":1e999})").status().param(), "temperature");
  EXPECT_EQ(ParseJson(R"({"<script>":1e999})").status().param(), "");
}

TEST(Json, MessagesHoldNoneOfTheInput) {
  EXPECT_EQ(ParseJson(R"({"secret": hunter2})").status().message().find("hunter2"), std::string::npos);
}

TEST(Json, StringsAreEscaped) {
  EXPECT_EQ(JsonString("a\"b\\c\n\r\t\x01/\xC3\xA9"), "\"a\\\"b\\\\c\\n\\r\\t\\u0001/\xC3\xA9\"");
  EXPECT_EQ(JsonString("\xFF"), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace millrace::api
