#include "common/config/schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "common/config/text_file.h"

namespace millrace::config {

using Json = nlohmann::ordered_json;

struct Schema::Field {
  std::string name;
  std::string type;       // for people: "string", "bytes"
  std::string json_type;  // of JSON schema
  FieldOptions options;
  std::string default_text;
  // Parse a text or a JSON value into the variable; what is wrong, or empty.
  std::function<std::string(const std::string&)> set_text;
  std::function<Json()> get;
  std::function<bool()> empty = [] { return false; };
  bool is_bool = false;
  bool is_list = false;

  std::string env_name() const {
    std::string text = "MILLRACE_" + name;
    for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
  }
  std::string file_key() const {
    std::string text = name;
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
  }
};

struct Schema::CommandLine {
  std::vector<std::pair<Field*, std::string>> flags;
  std::vector<std::string> positional;
  std::string config_file;
  bool help = false, version = false, print_config = false, print_schema = false;
};

class Schema::FieldSet {
 public:
  std::string program, usage, summary;
  std::vector<Field> fields;
  size_t most_positional = 0;
  std::string positional_name, positional_help;

  Field* Find(std::string_view name) {
    for (Field& field : fields) {
      if (field.name == name) return &field;
    }
    return nullptr;
  }

  // Closest name by edit distance, for the error message; empty when none is near.
  std::string Nearest(std::string_view name) const;
  CommandLine ReadFlags(const std::vector<std::string>& arguments, std::vector<std::string>& errors);
  // One --name or --name=value at arguments[at]; returns the index of the last word it took.
  size_t ReadFlag(const std::vector<std::string>& arguments, size_t at, CommandLine& line,
                  std::vector<std::string>& errors);
  void ReadFile(const std::string& path, std::vector<std::string>& errors);
  std::string JsonSchema() const;
};

namespace {

std::string Join(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text.append(separator);
    text.append(item);
  }
  return text;
}

std::string NumberText(double value) {
  char buffer[64];
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    std::snprintf(buffer, sizeof buffer, "%.0f", value);
  } else {
    std::snprintf(buffer, sizeof buffer, "%g", value);
  }
  return buffer;
}

std::string RangeError(const FieldOptions& options, double value) {
  if (value >= options.min && value <= options.max) return "";
  if (std::isinf(options.max)) return "must be at least " + NumberText(options.min);
  if (std::isinf(options.min)) return "must be at most " + NumberText(options.max);
  return "must be from " + NumberText(options.min) + " to " + NumberText(options.max);
}

template <class Number>
std::string ParseNumber(const std::string& text, const FieldOptions& options, Number* out) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return "'" + text + "' is not a number in range";
  if (std::string bad = RangeError(options, static_cast<double>(value)); !bad.empty()) return bad;
  *out = value;
  return "";
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = up;
    }
  }
  return row[b.size()];
}

// The text form of a JSON config value, as a flag would give it; nothing when its type cannot be one.
StatusOr<std::string> TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return std::string(value.get<bool>() ? "true" : "false");
  if (value.is_number()) return value.dump();
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const Json& item : value) {
      if (!item.is_string()) return InvalidArgument("list items must be strings");
      items.push_back(item.get<std::string>());
    }
    return Join(items, ",");
  }
  return InvalidArgument("must be a string, number, boolean or list of strings");
}

}  // namespace

std::string Schema::FieldSet::Nearest(std::string_view name) const {
  std::string best;
  size_t best_distance = 4;
  for (const Field& field : fields) {
    const size_t distance = EditDistance(name, field.name);
    if (distance < best_distance) {
      best_distance = distance;
      best = field.name;
    }
  }
  return best;
}

Schema::CommandLine Schema::FieldSet::ReadFlags(const std::vector<std::string>& arguments,
                                                std::vector<std::string>& errors) {
  CommandLine line;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      line.positional.insert(line.positional.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                             arguments.end());
      break;
    }
    if (word == "-h" || word == "--help") {
      line.help = true;
    } else if (word == "--version") {
      line.version = true;
    } else if (word == "--print-config") {
      line.print_config = true;
    } else if (word == "--print-config-schema") {
      line.print_schema = true;
    } else if (word.rfind("--", 0) == 0) {
      i = ReadFlag(arguments, i, line, errors);
    } else {
      line.positional.push_back(word);
    }
  }
  return line;
}

size_t Schema::FieldSet::ReadFlag(const std::vector<std::string>& arguments, size_t at, CommandLine& line,
                                  std::vector<std::string>& errors) {
  const std::string& word = arguments[at];
  const size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  std::optional<std::string> value;
  if (equals != std::string::npos) value = word.substr(equals + 1);
  Field* field = Find(name);
  if (field == nullptr && name.rfind("no-", 0) == 0 && !value) {
    if (Field* negated = Find(name.substr(3)); negated != nullptr && negated->is_bool) {
      line.flags.emplace_back(negated, "false");
      return at;
    }
  }
  if (field == nullptr && name != "config") {
    const std::string near = Nearest(name);
    errors.push_back("unknown flag --" + name + (near.empty() ? "; see --help" : "; did you mean --" + near + "?"));
    return at;
  }
  if (!value && field != nullptr && field->is_bool) value = "true";
  if (!value) {
    if (at + 1 >= arguments.size()) {
      errors.push_back("--" + name + " needs a value");
      return at;
    }
    value = arguments[++at];
  }
  if (field == nullptr) {
    line.config_file = *value;
  } else {
    line.flags.emplace_back(field, *value);
  }
  return at;
}

void Schema::FieldSet::ReadFile(const std::string& path, std::vector<std::string>& errors) {
  const std::string prefix = "config file " + path;
  const StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return errors.push_back("config file: " + text.status().message());
  const Json document = Json::parse(*text, nullptr, false, true);
  if (!document.is_object()) return errors.push_back(prefix + " is not a JSON object");
  for (const auto& [key, value] : document.items()) {
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.file_key() == key; });
    if (field == fields.end()) {
      errors.push_back(prefix + ": unknown key '" + key + "'");
      continue;
    }
    StatusOr<std::string> value_text = TextOf(value);
    const std::string bad = value_text.ok() ? field->set_text(*value_text) : value_text.status().message();
    if (!bad.empty()) errors.push_back(prefix + ": " + key + " " + bad);
  }
}

std::string Schema::FieldSet::JsonSchema() const {
  Json properties = Json::object();
  for (const Field& field : fields) {
    Json entry = {{"type", field.json_type}, {"description", field.options.help}};
    if (const auto& choices = field.options.choices; !choices.empty()) {
      entry["enum"] = choices;
      if (std::find(choices.begin(), choices.end(), field.default_text) == choices.end())
        entry["enum"].push_back(field.default_text);
    }
    if (field.json_type == "integer" || field.json_type == "number") {
      if (!std::isinf(field.options.min)) entry["minimum"] = field.options.min;
      if (!std::isinf(field.options.max)) entry["maximum"] = field.options.max;
    }
    if (field.is_list) entry["items"] = {{"type", "string"}};
    entry["default"] = field.get();
    properties[field.file_key()] = entry;
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", program},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", properties}};
  return schema.dump(2) + "\n";
}

Schema::Schema(std::string program, std::string usage, std::string summary) : fields_(std::make_unique<FieldSet>()) {
  fields_->program = std::move(program);
  fields_->usage = std::move(usage);
  fields_->summary = std::move(summary);
}

Schema::~Schema() = default;
Schema::Schema(Schema&&) noexcept = default;

void Schema::AllowPositional(size_t most, std::string name, std::string help) {
  fields_->most_positional = most;
  fields_->positional_name = std::move(name);
  fields_->positional_help = std::move(help);
}

void Schema::Add(std::string name, std::string* field, FieldOptions options) {
  Field f{.name = std::move(name), .type = "string", .json_type = "string", .options = options, .default_text = *field};
  f.set_text = [field, options, initial = *field](const std::string& text) -> std::string {
    if (!options.choices.empty() && text != initial &&
        std::find(options.choices.begin(), options.choices.end(), text) == options.choices.end())
      return "'" + text + "' is none of: " + Join(options.choices, ", ");
    *field = text;
    return "";
  };
  f.get = [field] { return Json(*field); };
  f.empty = [field] { return field->empty(); };
  fields_->fields.push_back(std::move(f));
}

void Schema::Add(std::string name, bool* field, FieldOptions options) {
  Field f{.name = std::move(name),
          .type = "bool",
          .json_type = "boolean",
          .options = options,
          .default_text = *field ? "true" : "false"};
  f.set_text = [field](const std::string& text) -> std::string {
    if (text != "true" && text != "false" && text != "1" && text != "0") return "'" + text + "' is not true or false";
    *field = text == "true" || text == "1";
    return "";
  };
  f.get = [field] { return Json(*field); };
  f.is_bool = true;
  fields_->fields.push_back(std::move(f));
}

template <class Integer>
void Schema::AddInteger(std::string name, Integer* field, FieldOptions options) {
  Field f{.name = std::move(name),
          .type = "number",
          .json_type = "integer",
          .options = options,
          .default_text = std::to_string(*field)};
  f.set_text = [field, options](const std::string& text) { return ParseNumber(text, options, field); };
  f.get = [field] { return Json(*field); };
  fields_->fields.push_back(std::move(f));
}

void Schema::Add(std::string name, uint16_t* field, FieldOptions options) {
  AddInteger(std::move(name), field, std::move(options));
}

void Schema::Add(std::string name, uint32_t* field, FieldOptions options) {
  AddInteger(std::move(name), field, std::move(options));
}

void Schema::Add(std::string name, uint64_t* field, FieldOptions options) {
  AddInteger(std::move(name), field, std::move(options));
}

void Schema::Add(std::string name, double* field, FieldOptions options) {
  Field f{.name = std::move(name),
          .type = "number",
          .json_type = "number",
          .options = options,
          .default_text = NumberText(*field)};
  f.set_text = [field, options](const std::string& text) -> std::string {
    double value = 0;
    if (std::string bad = ParseNumber(text, options, &value); !bad.empty()) return bad;
    if (!std::isfinite(value)) return "must be finite";
    *field = value;
    return "";
  };
  f.get = [field] { return Json(*field); };
  fields_->fields.push_back(std::move(f));
}

void Schema::Add(std::string name, Duration* field, FieldOptions options) {
  const auto milliseconds = [](Duration d) { return std::chrono::duration_cast<std::chrono::milliseconds>(d).count(); };
  Field f{.name = std::move(name),
          .type = "milliseconds",
          .json_type = "integer",
          .options = options,
          .default_text = std::to_string(milliseconds(*field))};
  if (std::isinf(f.options.min)) f.options.min = 0;
  f.set_text = [field, range = f.options](const std::string& text) -> std::string {
    int64_t value = 0;
    if (std::string bad = ParseNumber(text, range, &value); !bad.empty()) return bad;
    if (value > int64_t{1} << 40) return "is too large";
    *field = Milliseconds(value);
    return "";
  };
  f.get = [field, milliseconds] { return Json(milliseconds(*field)); };
  fields_->fields.push_back(std::move(f));
}

void Schema::Add(std::string name, Bytes* field, FieldOptions options) {
  Field f{.name = std::move(name),
          .type = "bytes",
          .json_type = "string",
          .options = options,
          .default_text = FormatBytes(field->value)};
  f.set_text = [field, options](const std::string& text) -> std::string {
    StatusOr<uint64_t> value = ParseBytes(text);
    if (!value.ok()) return value.status().message();
    if (std::string bad = RangeError(options, static_cast<double>(*value)); !bad.empty()) return bad + " bytes";
    field->value = *value;
    return "";
  };
  f.get = [field] { return Json(FormatBytes(field->value)); };
  fields_->fields.push_back(std::move(f));
}

void Schema::Add(std::string name, std::optional<Bytes>* field, FieldOptions options) {
  auto value = std::make_shared<Bytes>(field->value_or(Bytes{}));
  Add(std::move(name), value.get(), std::move(options));
  Field& f = fields_->fields.back();
  if (!*field) f.default_text.clear();
  f.set_text = [field, value, parse = std::move(f.set_text)](const std::string& text) -> std::string {
    if (text.empty()) {
      field->reset();
      return "";
    }
    if (std::string bad = parse(text); !bad.empty()) return bad;
    *field = *value;
    return "";
  };
  f.get = [field] { return Json(*field ? FormatBytes((*field)->value) : ""); };
}

void Schema::Add(std::string name, std::vector<std::string>* field, FieldOptions options) {
  Field f{.name = std::move(name),
          .type = "list",
          .json_type = "array",
          .options = options,
          .default_text = Join(*field, ",")};
  f.set_text = [field](const std::string& text) -> std::string {
    std::vector<std::string> items;
    std::stringstream stream(text);
    for (std::string item; std::getline(stream, item, ',');) {
      if (item.empty()) return "has an empty item in '" + text + "'";
      items.push_back(item);
    }
    *field = std::move(items);
    return "";
  };
  f.get = [field] { return Json(*field); };
  f.empty = [field] { return field->empty(); };
  f.is_list = true;
  fields_->fields.push_back(std::move(f));
}

StatusOr<ParseResult> Schema::Parse(const std::vector<std::string>& arguments,
                                    const std::function<const char*(const char*)>& environment) {
  std::vector<std::string> errors;
  CommandLine line = fields_->ReadFlags(arguments, errors);
  if (line.help) return ParseResult{Outcome::kExit, Help(), {}};
  if (line.version) return ParseResult{Outcome::kExit, Version() + "\n", {}};
  for (size_t i = fields_->most_positional; i < line.positional.size(); ++i)
    errors.push_back("unexpected word '" + line.positional[i] + "'; see --help");
  if (const char* value = environment("MILLRACE_CONFIG"); value != nullptr && line.config_file.empty())
    line.config_file = value;
  if (!line.config_file.empty()) fields_->ReadFile(line.config_file, errors);
  for (Field& field : fields_->fields) {
    const char* value = environment(field.env_name().c_str());
    if (value == nullptr) continue;
    if (const std::string bad = field.set_text(value); !bad.empty()) errors.push_back(field.env_name() + " " + bad);
  }
  for (const auto& [field, text] : line.flags) {
    if (const std::string bad = field->set_text(text); !bad.empty()) errors.push_back("--" + field->name + " " + bad);
  }
  if (line.print_schema) return ParseResult{Outcome::kExit, fields_->JsonSchema(), {}};
  if (!line.print_config) {
    for (const Field& field : fields_->fields) {
      if (field.options.required && field.empty()) errors.push_back("--" + field.name + " is required");
    }
  }
  if (!errors.empty()) return Status(Code::kInvalidArgument, Reason::kBadValue, Join(errors, "\n"));
  if (line.print_config) return ParseResult{Outcome::kExit, PrintConfig(), {}};
  return ParseResult{Outcome::kRun, "", std::move(line.positional)};
}

std::string Schema::Help() const {
  std::string text = "Usage: " + fields_->program + " " + fields_->usage + "\n\n" + fields_->summary + "\n";
  const auto add = [&text](std::string head, const std::string& help) {
    if (head.size() < 34)
      head.resize(34, ' ');
    else
      head.append("\n").append(34, ' ');
    text.append(head).append(help);
  };
  if (!fields_->positional_name.empty()) {
    text.append("\nArguments:\n");
    add("  " + fields_->positional_name, fields_->positional_help + "\n");
  }
  text.append("\nFlags (each is also an environment variable MILLRACE_<FLAG> and a key of the --config file):\n");
  for (const Field& field : fields_->fields) {
    add("  --" + field.name + (field.is_bool ? "" : " <" + field.type + ">"), field.options.help);
    if (!field.options.choices.empty()) text.append(" (").append(Join(field.options.choices, " | ")).append(")");
    if (!field.default_text.empty()) {
      text.append(" [default ").append(field.default_text).append("]");
    } else if (field.options.required) {
      text.append(" [required]");
    }
    text.append("\n");
  }
  text.append("  --config <file>                 JSON file with any of the keys above\n");
  text.append("  --print-config                  print the effective settings as JSON and exit\n");
  text.append("  --print-config-schema           print the JSON schema of the config file and exit\n");
  text.append("  --version                       print the version and exit\n");
  text.append("  --help                          print this and exit\n");
  return text;
}

std::string Schema::PrintConfig() const {
  Json object = Json::object();
  for (const Field& field : fields_->fields) object[field.file_key()] = field.get();
  return object.dump(2) + "\n";
}

std::string Version() { return MILLRACE_VERSION; }

std::string FormatBytes(uint64_t bytes) {
  static constexpr struct {
    uint64_t size;
    const char* suffix;
  } kUnits[] = {
      {uint64_t{1} << 40, "TiB"}, {uint64_t{1} << 30, "GiB"}, {uint64_t{1} << 20, "MiB"}, {uint64_t{1} << 10, "KiB"}};
  for (const auto& unit : kUnits) {
    if (bytes != 0 && bytes % unit.size == 0) return std::to_string(bytes / unit.size) + unit.suffix;
  }
  return std::to_string(bytes);
}

StatusOr<uint64_t> ParseBytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const Status bad = InvalidArgument("'" + std::string(text) + "' is not a size such as 512MiB, 4GiB or 1000000");
  if (error != std::errc() || !(number >= 0)) return bad;
  static constexpr struct {
    const char* suffix;
    double size;
  } kUnits[] = {{"", 1},         {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                {"TiB", 0x1p40}, {"K", 0x1p10}, {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
                {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12}};
  const std::string_view suffix(end, text.data() + text.size() - end);
  for (const auto& unit : kUnits) {
    if (suffix == unit.suffix && number * unit.size < 0x1p62) return static_cast<uint64_t>(number * unit.size);
  }
  return bad;
}

}  // namespace millrace::config
