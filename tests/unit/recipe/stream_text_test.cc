// Stop strings and incremental text.

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/recipe/incremental_detokenizer.h"
#include "common/recipe/stop_matcher.h"
#include "common/recipe/utf8.h"
#include "tests/unit/recipe/small_tokenizer.h"

namespace millrace::recipe {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Feed(StopMatcher matcher, const std::vector<std::string>& pieces) {
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.text += matcher.Push(piece);
    if (matcher.stopped()) break;
  }
  outcome.stopped = matcher.stopped();
  outcome.text += matcher.Flush();
  return outcome;
}

TEST(StopMatcher, CutsAtTheFirstStopAndHoldsBackPrefixes) {
  StopMatcher matcher({"END", "\n\n"});
  EXPECT_EQ(matcher.Push("a\n"), "a");
  EXPECT_EQ(matcher.Push("bE"), "\nb");
  EXPECT_EQ(matcher.Push("N"), "");
  EXPECT_EQ(matcher.Push("x"), "ENx");
  EXPECT_EQ(matcher.Push("EN"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Push("D and more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.stop(), "END");
  EXPECT_EQ(matcher.Push("later"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, KeepsTheStopStringWhenAsked) {
  StopMatcher matcher({"</s>"}, true);
  EXPECT_EQ(matcher.Push("a</"), "a");
  EXPECT_EQ(matcher.Push("s>b"), "</s>");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher({""});
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, LongestOfThoseCompletedTogether) {
  StopMatcher matcher({"c", "abc", "bc"});
  EXPECT_EQ(matcher.Push("xabc"), "x");
  EXPECT_EQ(matcher.stop(), "abc");
}

TEST(StopMatcher, ResultDoesNotDependOnTheSplit) {
  const std::vector<std::vector<std::string>> stop_sets = {
      {"aab"}, {"abab", "bb"}, {"aaaa"}, {"ab", "aba", "b"}, {"é", "\xF0\x9F\x99\x82!"}};
  Rng rng(4);
  for (const auto& stops : stop_sets) {
    for (int round = 0; round < 60; ++round) {
      static constexpr std::string_view kParts[] = {"a", "b", "ab", "c", "é", "🙂", "!"};
      std::string text;
      for (uint64_t n = 1 + rng.Below(7); n > 0; --n) text += kParts[rng.Below(std::size(kParts))];
      const Outcome whole = Feed(StopMatcher(stops), {text});
      for (uint64_t mask = 0; mask < (uint64_t{1} << std::min<size_t>(text.size() - 1, 10)); ++mask) {
        std::vector<std::string> pieces(1);
        for (size_t i = 0; i < text.size(); ++i) {
          pieces.back() += text[i];
          if (((mask >> i) & 1) != 0) pieces.emplace_back();
        }
        ASSERT_EQ(Feed(StopMatcher(stops), pieces), whole) << text << " " << mask;
      }
    }
  }
}

TEST(IncrementalDetokenizer, HoldsBackPartsOfCharacters) {
  const auto tokenizer = test::SmallTokenizer();
  IncrementalDetokenizer detokenizer(tokenizer);
  std::vector<std::string> deltas;
  for (const char c : std::string("x🙂")) deltas.push_back(detokenizer.Push(test::ByteId(c)));
  EXPECT_EQ(deltas, (std::vector<std::string>{"x", "", "", "", "🙂"}));
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(IncrementalDetokenizer, AnUnfinishedCharacterBecomesTheReplacementCharacter) {
  IncrementalDetokenizer detokenizer(test::SmallTokenizer());
  EXPECT_EQ(detokenizer.Push(test::ByteId('\xF0')), "");
  EXPECT_EQ(detokenizer.Push(test::ByteId('\x9F')), "");
  EXPECT_EQ(detokenizer.Flush(), kReplacementCharacter);
}

TEST(IncrementalDetokenizer, DeltasJoinToTheWholeForRandomIds) {
  const auto tokenizer = test::SmallTokenizer();
  Rng rng(9);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids;
    for (uint64_t n = rng.Below(12); n > 0; --n) {
      ids.push_back(static_cast<TokenId>(rng.Below(tokenizer->vocab_size() + 2)));
    }
    IncrementalDetokenizer detokenizer(tokenizer);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string delta = detokenizer.Push(id);
      EXPECT_TRUE(IsValidUtf8(delta));
      joined += delta;
    }
    joined += detokenizer.Flush();
    ASSERT_EQ(joined, tokenizer->Decode(ids));
  }
}

TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(ReplaceInvalidUtf8("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82(\xC0\xAF"), "\uFFFD(\uFFFD\uFFFD");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_TRUE(IsValidUtf8("é中🙂\U0010FFFF"));
  EXPECT_FALSE(IsValidUtf8("\xC3"));
}

}  // namespace
}  // namespace millrace::recipe
