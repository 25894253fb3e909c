#include "common/recipe/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "common/base/random.h"
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

std::vector<Segment> Segments(const std::string& source, const Conversation& conversation) {
  const auto compiled = ChatTemplate::Compile(source);
  EXPECT_TRUE(compiled.ok()) << compiled.status().ToString();
  const auto segments = (*compiled)->Render(ConversationVariables(conversation), kNow);
  EXPECT_TRUE(segments.ok()) << segments.status().ToString();
  return segments.ok() ? *segments : std::vector<Segment>();
}

TEST(ChatTemplate, ContentKeepsItsMarkThroughEveryOperation) {
  const Conversation chat = {.messages = {{.role = "user", .content = {{" <x>,b "}}, .name = "bob"}}};
  const std::string role_and_name = "{{ messages[0].role ~ messages[0].name }}";
  EXPECT_EQ(Segments(role_and_name, chat), (std::vector<Segment>{{"user", false}, {"bob", true}}));
  for (const char* operation : {"m",
                                "m|trim",
                                "m.strip()",
                                "m|upper",
                                "m.replace('b', 'c')",
                                "m.split(',')[0]",
                                "m[1:4]",
                                "m|tojson",
                                "[m]|join",
                                "'%s' % m",
                                "'{}'.format(m)",
                                "m|string",
                                "m|e",
                                "m|title",
                                "(m ~ '')|list|join",
                                "m|indent",
                                "{'a': m}|tojson",
                                "[m]|string",
                                "m|reverse",
                                "m|truncate(3, true, '', 0)",
                                "m.partition(',')[0]"}) {
    const std::string source = std::string("{% set m = messages[0].content %}[{{ ") + operation + " }}]";
    std::string content;
    for (const Segment& segment : Segments(source, chat)) {
      if (segment.is_content) content += segment.text;
    }
    // All that came from the user is marked: no bracket and no letter of it is literal.
    EXPECT_THAT(content,
                testing::AnyOf(HasSubstr("<x"), HasSubstr("<X"), HasSubstr("lt;x"), HasSubstr("x<"), HasSubstr(">x<")))
        << operation;
  }
}

TEST(ChatTemplate, PercentFormatsAsPython) {
  const OrderedJson none = OrderedJson::object();
  EXPECT_EQ(RenderText("{{ '%5d|%-5d|%05d|%+d|%x|%X|%o|%.3d' % (42, 42, -42, 42, 255, 255, 8, 7) }}", none).value(),
            "   42|42   |-0042|+42|ff|FF|10|007");
  EXPECT_EQ(
      RenderText("{{ '%.2f|%8.3f|%e|%g|%d|%s|%r|%5s|%-5s|%%' % (2.5, -1.0, 12345.678, 0.1, 3.9, 'a', 'b', 'c', 'd') }}",
                 none)
          .value(),
      "2.50|  -1.000|1.234568e+04|0.1|3|a|'b'|    c|d    |%");
  EXPECT_FALSE(RenderText("{{ '%d' % 'x' }}", none).ok());
  EXPECT_FALSE(RenderText("{{ '%d %d' % 1 }}", none).ok());
  EXPECT_FALSE(RenderText("{{ '%q' % 1 }}", none).ok());
}

TEST(ChatTemplate, PartsAreJoined) {
  const Conversation chat = {.messages = {{.role = "user", .content = {{"a", "b"}}, .name = ""},
                                          {.role = "assistant", .content = std::nullopt, .name = ""}}};
  EXPECT_EQ(Joined(Segments("{{ messages[0].content }}|{{ messages[1].content is none }}", chat)), "ab|True");
}

// None of these may hang, exhaust memory or overflow the stack.
TEST(ChatTemplate, HostileTemplatesEnd) {
  const std::string deep(20000, '(');
  std::string chain = "{{ 1";
  for (int i = 0; i < 20000; ++i) chain += "+1";
  std::string attributes = "{{ a";
  for (int i = 0; i < 20000; ++i) attributes += ".a";
  std::string blocks;
  for (int i = 0; i < 20000; ++i) blocks += "{% if 1 %}";
  const std::string sources[] = {
      "{{ " + deep,
      chain + " }}",
      attributes + " }}",
      blocks,
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
      "{{ 'x' * 999999999999 }}",
      "{{ [1] * 999999999999 }}",
      "{{ 'x'|center(999999999999) }}{{ '%99999999d' % 1 }}{{ 'x'|indent(99999999999) }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace() %}{% for i in range(99999) %}{% set n = namespace(p=ns.p) %}{% set ns.p = n %}{% endfor "
      "%}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.all = [ns, ns.me] %}{{ ns.all|length }}",
      "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}",
      "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x].count %}{% endfor %}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ 10 ** 100 }}",
      "{{ (2 ** 62) // -1 }}{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)|list }}",
      "{{ 'abc'[::9223372036854775807] }}{{ 'abc'[9223372036854775807:-9223372036854775807:-1] }}",
      "{{ '{'|from_json }}",
      "{% raw %}",
      "{{ '",
      "{# ",
      "{% set",
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 80));
    const auto result = RenderText(source, OrderedJson::object());
    EXPECT_TRUE(result.ok() || !result.status().message().empty());
  }
}

// Any source either parses or fails with a message.
TEST(ChatTemplate, DamagedTemplatesNeverCrash) {
  const OrderedJson vectors = ReadJson(test::SourceDir() + "/tests/golden/data/jinja_micro_vectors.json");
  Rng rng(11);
  for (const auto& v : vectors["vectors"]) {
    for (int round = 0; round < 20; ++round) {
      std::string source = v["template"];
      if (source.empty()) continue;
      static constexpr std::string_view kParts[] = {"{%", "%}", "{{", "}}", "(",  ")", "[",
                                                    "'",  "|",  "-",  ":",  "if", "\\"};
      const size_t at = rng.Below(source.size());
      if (rng.Below(2) == 0) {
        source.erase(at, 1 + rng.Below(3));
      } else {
        source.insert(at, kParts[rng.Below(std::size(kParts))]);
      }
      const auto result = RenderText(source, v["context"]);
      EXPECT_TRUE(result.ok() || !result.status().message().empty()) << source;
    }
  }
}

}  // namespace
}  // namespace millrace::recipe
