#include "common/config/schema.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>

namespace millrace::config {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

struct Settings {
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  uint32_t threads = 2;
  bool fsync = false;
  double ratio = 0.5;
  Duration silence = Milliseconds(1500);
  Bytes memory{512 << 20};
  std::vector<std::string> peers;
  std::string mode = "auto";

  Schema Describe() {
    Schema s("prog", "[flags]", "A test.");
    s.Add("host", &host, {.help = "address"});
    s.Add("port", &port, {.help = "port"});
    s.Add("threads", &threads, {.help = "threads", .min = 1, .max = 64});
    s.Add("fsync", &fsync, {.help = "sync"});
    s.Add("ratio", &ratio, {.help = "ratio", .min = 0, .max = 1});
    s.Add("silence-ms", &silence, {.help = "deadline"});
    s.Add("kv-memory", &memory, {.help = "memory", .min = 1024});
    s.Add("peers", &peers, {.help = "peers"});
    s.Add("mode", &mode, {.help = "mode", .choices = {"auto", "avx2"}});
    return s;
  }
};

const char* NoEnvironment(const char*) { return nullptr; }

class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    char name[] = "/tmp/millrace-config-XXXXXX";
    close(mkstemp(name));
    path_ = name;
    std::ofstream(path_) << text;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(SchemaTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const TempFile file(R"({"threads": 3, "host": "file", "ratio": 0.25, "peers": ["a:1", "b:2"]})");
  const std::map<std::string, std::string> variables = {{"MILLRACE_THREADS", "4"}, {"MILLRACE_HOST", "env"}};
  Settings s;
  Schema schema = s.Describe();
  const auto result = schema.Parse({"--config", file.path(), "--threads=5"}, [&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(s.threads, 5u);
  EXPECT_EQ(s.host, "env");
  EXPECT_EQ(s.ratio, 0.25);
  EXPECT_EQ(s.peers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(s.silence, Milliseconds(1500));
}

TEST(SchemaTest, EveryErrorIsListedAtOnce) {
  Settings s;
  Schema schema = s.Describe();
  const auto result = schema.Parse({"--threads", "0", "--thread", "3", "--port", "70000", "--kv-memory", "much",
                                    "--mode", "sse", "--fsync=maybe", "stray", "--ratio", "nan"},
                                   NoEnvironment);
  ASSERT_FALSE(result.ok());
  const std::string& message = result.status().message();
  EXPECT_THAT(message, HasSubstr("--threads must be from 1 to 64"));
  EXPECT_THAT(message, HasSubstr("unknown flag --thread; did you mean --threads?"));
  EXPECT_THAT(message, HasSubstr("--port '70000' is not a number in range"));
  EXPECT_THAT(message, HasSubstr("--kv-memory 'much' is not a size"));
  EXPECT_THAT(message, HasSubstr("--mode 'sse' is none of: auto, avx2"));
  EXPECT_THAT(message, HasSubstr("--fsync 'maybe' is not true or false"));
  EXPECT_THAT(message, HasSubstr("unexpected word 'stray'"));
  EXPECT_THAT(message, HasSubstr("--ratio"));
}

TEST(SchemaTest, UnknownFileKeyAndBrokenFileAreErrors) {
  const TempFile unknown(R"({"nope": 1})"), broken("{"), wrong(R"({"threads": {"a": 1}})");
  for (const auto& [path, text] : {std::pair(unknown.path(), "unknown key 'nope'"),
                                   {broken.path(), "is not a JSON object"},
                                   {wrong.path(), "threads must be"},
                                   {std::string("/nonexistent"), "reading /nonexistent"},
                                   {std::string("/"), "reading /: Is a directory"}}) {
    Settings s;
    Schema schema = s.Describe();
    const auto result = schema.Parse({"--config", path}, NoEnvironment);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr(text));
  }
}

TEST(SchemaTest, BooleanFormsAndSizes) {
  Settings s;
  Schema schema = s.Describe();
  ASSERT_TRUE(schema.Parse({"--fsync", "--kv-memory", "1.5GiB"}, NoEnvironment).ok());
  EXPECT_TRUE(s.fsync);
  EXPECT_EQ(s.memory.value, uint64_t{3} << 29);
  ASSERT_TRUE(schema.Parse({"--no-fsync"}, NoEnvironment).ok());
  EXPECT_FALSE(s.fsync);
}

TEST(SchemaTest, PrintedConfigIsAValidConfigFile) {
  Settings s;
  s.peers = {"x:1"};
  Schema schema = s.Describe();
  const auto printed = schema.Parse({"--threads", "7", "--print-config"}, NoEnvironment);
  ASSERT_TRUE(printed.ok());
  ASSERT_EQ(printed->outcome, Outcome::kExit);
  const TempFile file(printed->output);
  Settings again;
  Schema second = again.Describe();
  ASSERT_TRUE(second.Parse({"--config", file.path()}, NoEnvironment).ok());
  EXPECT_EQ(again.threads, 7u);
  EXPECT_EQ(again.peers, s.peers);
  EXPECT_EQ(again.memory.value, s.memory.value);
}

TEST(SchemaTest, HelpNamesEveryFlagWithItsDefault) {
  Settings s;
  Schema schema = s.Describe();
  const auto result = schema.Parse({"--help"}, NoEnvironment);
  ASSERT_TRUE(result.ok());
  for (const char* text : {"--host", "[default 127.0.0.1]", "--kv-memory <bytes>", "[default 512MiB]", "(auto | avx2)"})
    EXPECT_THAT(result->output, HasSubstr(text));
}

TEST(SchemaTest, HelpOfARequiredSettingWithADefaultShowsTheDefault) {
  std::string given = "model.gguf", wanted;
  Schema schema("prog", "[flags]", "A test.");
  schema.Add("model", &given, {.help = "model", .required = true});
  schema.Add("balancers", &wanted, {.help = "peers", .required = true});
  EXPECT_THAT(schema.Help(), HasSubstr("model [default model.gguf]\n"));
  EXPECT_THAT(schema.Help(), HasSubstr("peers [required]\n"));
}

TEST(SchemaTest, PositionalWordsHaveAHeadingInTheHelp) {
  Settings s;
  Schema schema = s.Describe();
  EXPECT_THAT(schema.Help(), Not(HasSubstr("Arguments:")));
  schema.AllowPositional(1, "ROLE", "whose logs");
  EXPECT_THAT(schema.Help(), ContainsRegex("\nArguments:\n  ROLE +whose logs\n"));
}

TEST(SchemaTest, VersionIsTheNumberAloneWhateverElseIsMissing) {
  std::string wanted;
  Schema schema("prog", "[flags]", "A test.");
  schema.Add("model", &wanted, {.help = "model", .required = true});
  const auto result = schema.Parse({"--version"}, NoEnvironment);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->outcome, Outcome::kExit);
  EXPECT_THAT(result->output, MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(SchemaTest, ASizeMayBeUnset) {
  std::optional<Bytes> memory;
  Schema schema("prog", "[flags]", "A test.");
  schema.Add("kv-memory", &memory, {.help = "memory", .min = 1024});
  EXPECT_THAT(schema.Help(), HasSubstr("--kv-memory <bytes>"));
  EXPECT_THAT(schema.Help(), Not(HasSubstr("[default")));
  ASSERT_TRUE(schema.Parse({}, NoEnvironment).ok());
  EXPECT_FALSE(memory.has_value());
  for (const char* bad : {"12parsecs", "1023"}) {
    EXPECT_FALSE(schema.Parse({"--kv-memory", bad}, NoEnvironment).ok());
    EXPECT_FALSE(memory.has_value());
  }
  ASSERT_TRUE(schema.Parse({"--kv-memory", "2KiB"}, NoEnvironment).ok());
  EXPECT_EQ(memory->value, 2048u);
  ASSERT_TRUE(schema.Parse({"--kv-memory="}, NoEnvironment).ok());
  EXPECT_FALSE(memory.has_value());
}

TEST(SchemaTest, ADefaultNeedNotBeAmongTheChoices) {
  std::string policy;
  Schema schema("prog", "[flags]", "A test.");
  schema.Add("policy", &policy, {.help = "policy", .choices = {"a", "b"}});
  EXPECT_TRUE(schema.Parse({"--policy", ""}, NoEnvironment).ok());
  EXPECT_FALSE(schema.Parse({"--policy", "nosuch"}, NoEnvironment).ok());
}

TEST(ParseBytesTest, RoundTripsAndRefuses) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1023}, uint64_t{1} << 20, uint64_t{5} << 40}) {
    const auto parsed = ParseBytes(FormatBytes(value));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, value);
  }
  for (const char* text : {"", "-1", "1XB", "GiB", "1e99"}) EXPECT_FALSE(ParseBytes(text).ok()) << text;
}

}  // namespace
}  // namespace millrace::config
