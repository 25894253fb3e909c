#include <signal.h>

#include <cstdio>
#include <string>
#include <vector>

#include "services/cli/commands.h"

namespace {

using millrace::cli::Command;

constexpr Command kCommands[] = {
    {"up", "start a cluster on this machine and watch over it", millrace::cli::RunUp},
    {"down", "stop a cluster that was started with up", millrace::cli::RunDown},
    {"status", "list every process of a cluster", millrace::cli::RunStatus},
    {"logs", "print the logs of a cluster's processes", millrace::cli::RunLogs},
    {"chat", "talk to a running cluster", millrace::cli::RunChat},
    {"generate", "run a model in this one process, without a cluster", millrace::cli::RunGenerate},
    {"bench", "load a running gateway and measure it", millrace::cli::RunBench},
};

void PrintUsage(std::FILE* out) {
  std::fputs("usage: millrace COMMAND [flags]\n\n", out);
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-10.*s %.*s\n", static_cast<int>(command.name.size()), command.name.data(),
                 static_cast<int>(command.summary.size()), command.summary.data());
  }
  std::fputs("\n`millrace COMMAND --help` lists the flags of one, `millrace --version` prints the version.\n", out);
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    PrintUsage(stderr);
    return 2;
  }
  if (words[0] == "--version") {
    std::printf("%s\n", millrace::config::Version().c_str());
    return 0;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    PrintUsage(stdout);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
  }
  std::fprintf(stderr, "millrace: unknown command '%s'\n\n", words[0].c_str());
  PrintUsage(stderr);
  return 2;
}
