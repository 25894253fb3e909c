#include <cstdio>
#include <cstdlib>

#include "services/cli/commands.h"

namespace millrace::cli {

ParsedCommand ParseCommand(config::Schema& schema, const std::vector<std::string>& arguments) {
  auto parsed = schema.Parse(arguments, [](const char* name) -> const char* { return std::getenv(name); });
  if (!parsed.ok()) {
    std::fprintf(stderr, "millrace: %s\n", parsed.status().message().c_str());
    return {true, 2, {}};
  }
  if (parsed->outcome == config::Outcome::kExit) {
    std::fputs(parsed->output.c_str(), stdout);
    return {true, 0, {}};
  }
  return {false, 0, std::move(parsed->positional)};
}

int Fail(std::string_view command, const Status& status) {
  std::fprintf(stderr, "millrace %.*s: %s\n", static_cast<int>(command.size()), command.data(),
               status.message().c_str());
  return status.reason() == Reason::kBadValue || status.reason() == Reason::kMissing ? 2 : 1;
}

}  // namespace millrace::cli
