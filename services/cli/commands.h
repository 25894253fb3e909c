#pragma once
// The subcommands of `millrace`. Each takes the words after its name and returns the exit status: 0 done, 1 failed, 2
// wrong usage.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/config/schema.h"

namespace millrace::cli {

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const std::vector<std::string>& arguments);
};

int RunUp(const std::vector<std::string>& arguments);
int RunDown(const std::vector<std::string>& arguments);
int RunStatus(const std::vector<std::string>& arguments);
int RunLogs(const std::vector<std::string>& arguments);
int RunChat(const std::vector<std::string>& arguments);
int RunGenerate(const std::vector<std::string>& arguments);
int RunBench(const std::vector<std::string>& arguments);

// Parses, answering --help and wrong usage itself: nullopt-like result of an exit status when the command is over.
struct ParsedCommand {
  bool over = false;
  int exit_status = 0;
  std::vector<std::string> positional;
};
ParsedCommand ParseCommand(config::Schema& schema, const std::vector<std::string>& arguments);

// Prints "millrace NAME: message" to stderr. Returns the exit status: 2 when a flag's value is wrong or missing,
// else 1.
int Fail(std::string_view command, const Status& status);

}  // namespace millrace::cli
