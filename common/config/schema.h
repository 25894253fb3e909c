#pragma once
// One description of a program's settings, from which come its flags, environment variables, config file keys, help
// text and printed config. Precedence: flag > environment > file > default. A field `kv-memory` is the flag
// --kv-memory, the variable MILLRACE_KV_MEMORY and the file key "kv_memory".
//
//   struct Config { uint32_t threads = 2; void Describe(config::Schema& s) { s.Add("threads", &threads, {.help =
//   "..."}); } };

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"

namespace millrace::config {

struct FieldOptions {
  std::string help;
  double min = -std::numeric_limits<double>::infinity();  // of numbers, in the field's unit
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;  // of strings, beside the default; empty = any
  bool required = false;             // empty is an error
};

// A number of bytes; flags take "512MiB", "4GiB", "100MB" or plain bytes.
struct Bytes {
  uint64_t value = 0;
};

enum class Outcome : uint8_t {
  kRun,   // go on with the values
  kExit,  // --help or the like was answered: print `output`, exit 0
};

struct ParseResult {
  Outcome outcome = Outcome::kRun;
  std::string output;
  std::vector<std::string> positional;
};

// Field pointers must outlive the schema. Not thread-safe.
class Schema {
 public:
  // `usage` follows the program's name in the help, e.g. "[flags]"; `summary` is a sentence or two.
  Schema(std::string program, std::string usage, std::string summary);
  ~Schema();
  Schema(Schema&&) noexcept;

  // The value that *field holds now is the default. Names are lower-case words with '-'.
  void Add(std::string name, std::string* field, FieldOptions options);
  void Add(std::string name, bool* field, FieldOptions options);
  void Add(std::string name, uint16_t* field, FieldOptions options);
  void Add(std::string name, uint32_t* field, FieldOptions options);
  void Add(std::string name, uint64_t* field, FieldOptions options);
  void Add(std::string name, double* field, FieldOptions options);
  void Add(std::string name, Duration* field, FieldOptions options);  // name ends in -ms: whole milliseconds
  void Add(std::string name, Bytes* field, FieldOptions options);
  void Add(std::string name, std::optional<Bytes>* field, FieldOptions options);      // empty text = none
  void Add(std::string name, std::vector<std::string>* field, FieldOptions options);  // comma-separated

  // How many positional words are allowed (default 0), and what the help calls them and says of them.
  void AllowPositional(size_t most, std::string name, std::string help);

  // Reads flags (argv without the program's name), environment and the file of --config into the fields. Every error is
  // listed in one kInvalidArgument. `environment` looks a variable up (null = unset). Also answers --help,
  // --version, --print-config (the effective values as JSON) and --print-config-schema.
  StatusOr<ParseResult> Parse(const std::vector<std::string>& arguments,
                              const std::function<const char*(const char*)>& environment);

  std::string Help() const;
  std::string PrintConfig() const;  // JSON object, file keys

 private:
  struct Field;
  struct CommandLine;
  class FieldSet;
  template <class Integer>
  void AddInteger(std::string name, Integer* field, FieldOptions options);

  std::unique_ptr<FieldSet> fields_;
};

// Of the project: "0.1.0".
std::string Version();

// "1.5GiB" for people.
std::string FormatBytes(uint64_t bytes);
StatusOr<uint64_t> ParseBytes(std::string_view text);

}  // namespace millrace::config
