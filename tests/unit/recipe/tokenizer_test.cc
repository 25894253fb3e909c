#include "common/recipe/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/recipe/byte_pair_merges.h"
#include "common/recipe/end_tokens.h"
#include "common/recipe/model_recipe.h"
#include "tests/unit/recipe/small_tokenizer.h"

namespace millrace::recipe {
namespace {

using test::ByteId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Tokenizer, MergesBestPairsFirst) {
  const auto t = test::SmallTokenizer();
  EXPECT_THAT(t->Encode("hello", SpecialText::kParse), ElementsAre(test::kHell, ByteId('o')));
  EXPECT_THAT(t->Encode("lll", SpecialText::kParse), ElementsAre(test::kLl, ByteId('l')));
  EXPECT_EQ(t->Decode(t->Encode("hello wörld 🙂", SpecialText::kParse)), "hello wörld 🙂");
}

TEST(Tokenizer, SpecialTextIsParsedOnlyWhenAsked) {
  const auto t = test::SmallTokenizer();
  EXPECT_THAT(t->Encode("<|end|>", SpecialText::kParse), ElementsAre(test::kEnd));
  EXPECT_EQ(t->Encode("<|end|></think>", SpecialText::kIsText).size(), std::string("<|end|></think>").size());
  EXPECT_THAT(t->Encode("a</think><|end|>", SpecialText::kParse), ElementsAre(ByteId('a'), test::kThink, test::kEnd));
  EXPECT_EQ(t->Find("<|start|>"), test::kStart);
  EXPECT_EQ(t->Find("<|sta"), std::nullopt);
}

TEST(Tokenizer, ControlTokensNeedAllTheirTextOutsideContent) {
  const auto t = test::SmallTokenizer();
  const std::vector<Segment> split = {{"<|", false}, {"end", true}, {"|>", false}};
  const std::vector<TokenId> ids = t->Encode(split);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), test::kEnd), 0);
  const std::vector<Segment> whole = {{"<|e", false}, {"nd|>", false}, {"<|end|>", true}};
  const std::vector<TokenId> mixed = t->Encode(whole);
  EXPECT_EQ(mixed.front(), test::kEnd);
  EXPECT_EQ(std::count(mixed.begin(), mixed.end(), test::kEnd), 1);
}

TEST(Tokenizer, ContentMergesWithTheTextAroundIt) {
  const auto t = test::SmallTokenizer();
  const std::vector<Segment> segments = {{"he", false}, {"ll", true}};
  EXPECT_THAT(t->Encode(segments), ElementsAre(test::kHell));
}

TEST(Tokenizer, ControlTokensLeaveNoText) {
  const auto t = test::SmallTokenizer();
  const std::vector<TokenId> ids = {ByteId('a'), test::kStart, ByteId('b'), test::kThink, test::kEnd, -1, 9999};
  EXPECT_EQ(t->Decode(ids), "ab</think>");
  EXPECT_EQ(t->TokenBytes(test::kEnd), "<|end|>");
  EXPECT_EQ(t->TextBytes(test::kEnd), "");
  EXPECT_TRUE(t->IsControl(test::kEnd));
  EXPECT_FALSE(t->IsControl(test::kThink));
  EXPECT_FALSE(t->IsControl(-5));
}

TEST(Tokenizer, IllFormedTextCountsAsReplacementCharacters) {
  const auto t = test::SmallTokenizer();
  EXPECT_EQ(t->Decode(t->Encode("a\xFF\xE2\x82z", SpecialText::kParse)), "a\uFFFD\uFFFDz");
}

TEST(Tokenizer, WrongSpecsAreNamed) {
  const auto refused = [](auto change) {
    TokenizerSpec spec = test::SmallSpec();
    change(spec);
    const auto made = Tokenizer::Create(spec);
    EXPECT_FALSE(made.ok());
    return made.ok() ? Status() : made.status();
  };
  Status s = refused([](auto& spec) { spec.model = "llama"; });
  EXPECT_EQ(s.code(), Code::kUnimplemented);
  EXPECT_THAT(s.message(), AllOf(HasSubstr("'llama'"), HasSubstr("gpt2")));
  s = refused([](auto& spec) { spec.pre = "nobody-knows"; });
  EXPECT_EQ(s.code(), Code::kUnimplemented);
  EXPECT_THAT(s.message(), AllOf(HasSubstr("nobody-knows"), HasSubstr("smollm"), HasSubstr("qwen2")));
  EXPECT_EQ(refused([](auto& spec) { spec.tokens.clear(); }).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& spec) { spec.types.pop_back(); }).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& spec) { spec.eos = 100000; }).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& spec) { spec.bos = -1; }).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused([](auto& spec) { spec.merges.push_back("single"); }).code(), Code::kInvalidArgument);
}

// Short words are merged by scanning, long ones with a heap: both must choose alike.
TEST(BytePairMerges, LongAndShortWordsAreMergedAlike) {
  std::vector<std::pair<std::string, TokenId>> vocabulary = {{"a", 0},  {"b", 1},    {"ab", 2},  {"ba", 3},
                                                             {"aa", 4}, {"abab", 5}, {"aab", 6}, {"bb", 7}};
  const BytePairMerges merges(vocabulary, {{"a", "b"}, {"b", "a"}, {"ab", "ab"}, {"a", "a"}, {"a", "ab"}, {"b", "b"}});
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    std::string word;
    for (int i = 0; i < 32; ++i) word += rng.Below(2) == 0 ? 'a' : 'b';
    std::vector<TokenId> by_scan;
    merges.Encode(word, by_scan);
    // The same word made long by a part that merges with nothing.
    std::vector<TokenId> by_heap;
    merges.Encode(word + std::string(8, 'z'), by_heap);
    EXPECT_EQ(by_scan, by_heap) << word;  // z is no token and is dropped
  }
}

TEST(Tokenizer, LongRunsOfOneLetterAreNotQuadratic) {
  TokenizerSpec spec = test::SmallSpec();
  std::string part = "a";
  for (int i = 0; i < 10; ++i) {
    spec.merges.push_back(part + " " + part);
    part += part;
    spec.tokens.push_back(part);
    spec.types.push_back(TokenType::kNormal);
  }
  for (const char* pre : {"gpt-2", "default", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3"}) {
    spec.pre = pre;
    const auto made = Tokenizer::Create(spec);
    ASSERT_TRUE(made.ok());
    for (const char letter : {'a', ' ', '\n', '<', '1', '!'}) {
      const std::string text(1 << 18, letter);
      EXPECT_EQ((*made)->Decode((*made)->Encode(text, SpecialText::kParse)), text);
    }
  }
}

TEST(EndTokens, MessageEndIsNoneWhereCallsExist) {
  TokenizerSpec spec;
  spec.tokens = {"<|end|>", "<|return|>", "<|call|>", "x", "</s>"};
  spec.types = {TokenType::kControl, TokenType::kControl, TokenType::kControl, TokenType::kNormal, TokenType::kNormal};
  EXPECT_THAT(EndTokensBySpelling(spec), ElementsAre(1, 2));
  spec.tokens[2] = "y";
  EXPECT_THAT(EndTokensBySpelling(spec), ElementsAre(0, 1));
}

std::shared_ptr<const ModelRecipe> Recipe(std::string_view chat_template, bool add_bos) {
  TokenizerSpec spec = test::SmallSpec();
  spec.bos = test::kStart;
  spec.add_bos = add_bos;
  auto made = ModelRecipe::Create(std::move(spec), chat_template);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *made;
}

const Conversation kHi = {.messages = {{.role = "user", .content = {{"h", "i"}}, .name = ""}}};

TEST(ModelRecipe, BosComesOnce) {
  const char* plain = "{{ messages[0].content }}";
  const char* with_bos = "{{ bos_token + messages[0].content }}";
  const auto h = ByteId('h');
  const auto i = ByteId('i');
  EXPECT_THAT(Recipe(plain, false)->RenderChat(kHi).value(), ElementsAre(h, i));
  EXPECT_THAT(Recipe(plain, true)->RenderChat(kHi).value(), ElementsAre(test::kStart, h, i));
  EXPECT_THAT(Recipe(with_bos, false)->RenderChat(kHi).value(), ElementsAre(test::kStart, h, i));
  EXPECT_THAT(Recipe(with_bos, true)->RenderChat(kHi).value(), ElementsAre(test::kStart, h, i));
  EXPECT_THAT(Recipe("", true)->EncodeText("hi"), ElementsAre(test::kStart, h, i));
  EXPECT_THAT(Recipe("", true)->EncodeText("<|start|>hi"), ElementsAre(test::kStart, h, i));
}

TEST(ModelRecipe, WithoutATemplateChatIsRefusedAndCompletionsWork) {
  const auto recipe = Recipe("", false);
  EXPECT_FALSE(recipe->has_chat_template());
  EXPECT_EQ(recipe->RenderChat(kHi).status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(recipe->RenderChat(kHi).status().message(), HasSubstr("completions"));
  EXPECT_THAT(recipe->EncodeText("o"), ElementsAre(ByteId('o')));
}

TEST(ModelRecipe, TheTemplatesRefusalIsItsOwnMessage) {
  const auto recipe = Recipe("{{ raise_exception('roles must alternate') }}", false);
  EXPECT_EQ(recipe->RenderChat(kHi).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(recipe->RenderChat(kHi).status().message(), "roles must alternate");
}

TEST(ModelRecipe, RolesMakeControlTokensAndContentNever) {
  const auto recipe = Recipe("{% for m in messages %}{{ '<|' + m.role + '|>' + m.content|trim }}{% endfor %}", false);
  Conversation chat;
  chat.messages = {{.role = "end", .content = {{"<|end|>"}}, .name = ""}};  // no role of the API
  const auto ids = recipe->RenderChat(chat);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), test::kEnd), 0);
}

}  // namespace
}  // namespace millrace::recipe
