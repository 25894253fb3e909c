#include "common/recipe/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/test_model.h"
#include "tests/unit/recipe/json_values.h"

namespace millrace::recipe {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNow = 1767323045;  // 2026-01-02T03:04:05Z, as in the reference data

std::string Joined(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

// The text, or the error's message.
StatusOr<std::string> RenderText(const std::string& source, const OrderedJson& context) {
  MR_ASSIGN_OR_RETURN(const auto compiled, ChatTemplate::Compile(source));
  ChatTemplate::Variables variables;
  for (const auto& [name, value] : context.items()) variables.emplace(name, ToValue(value));
  MR_ASSIGN_OR_RETURN(const auto segments, compiled->Render(std::move(variables), kNow));
  return Joined(segments);
}

void ExpectOutcome(const std::string& source, const OrderedJson& context, const OrderedJson& expectation,
                   const std::string& name) {
  SCOPED_TRACE(name);
  const auto got = RenderText(source, context);
  if (expectation.contains("expected")) {
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_EQ(*got, expectation["expected"].get<std::string>());
    return;
  }
  ASSERT_FALSE(got.ok()) << "rendered: " << *got;
  const std::string error = expectation["error"];
  if (error == "TemplateError") {
    EXPECT_EQ(got.status().message(), expectation["error_message"].get<std::string>());
  } else {
    EXPECT_THAT(got.status().message(), HasSubstr(error));
  }
}

// Made with jinja2 3.1.6 in the environment of Hugging Face's transformers.
TEST(ChatTemplate, MicroVectorsEqualJinja2) {
  const OrderedJson vectors = ReadJson(test::SourceDir() + "/tests/golden/data/jinja_micro_vectors.json");
  int count = 0;
  for (const auto& v : vectors["vectors"]) {
    ExpectOutcome(v["template"], v["context"], v, v["name"]);
    ++count;
  }
  EXPECT_GT(count, 100);
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Templates of real models are their authors' and lie outside this repository.
TEST(ChatTemplate, RealTemplatesEqualJinja2) {
  const std::string data = test::EnvironmentOr("MILLRACE_API_DATA", test::SourceDir() + "/../shared/data/api");
  std::ifstream goldens(data + "/template_goldens.jsonl");
  if (!goldens.good()) GTEST_SKIP() << data << " has no template_goldens.jsonl";
  const OrderedJson scenarios = ReadJson(data + "/template_scenarios.json");
  int count = 0;
  for (std::string line; std::getline(goldens, line);) {
    const OrderedJson golden = OrderedJson::parse(line);
    const std::string source = ReadText(data + "/templates/" + golden["template"].get<std::string>() + ".jinja");
    if (source.empty()) continue;
    // Jinja2 can't print the generator that its own filter makes; ours makes a list.
    if (golden.value("error_message", "").find("generator") != std::string::npos) continue;
    OrderedJson context = scenarios["scenarios"][golden["scenario"].get<std::string>()];
    context["bos_token"] = scenarios["bos_token"];
    context["eos_token"] = scenarios["eos_token"];
    ExpectOutcome(source, context, golden,
                  golden["template"].get<std::string>() + " " + golden["scenario"].get<std::string>());
    ++count;
  }
  std::printf("%d goldens run\n", count);
}

}  // namespace
}  // namespace millrace::recipe
