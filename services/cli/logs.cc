#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <thread>

#include "services/cli/commands.h"
#include "services/cli/state_folder.h"

namespace millrace::cli {
namespace {

constexpr auto kFollowInterval = std::chrono::milliseconds(200);

// One log file and how far it was printed.
class LogFile {
 public:
  LogFile(std::string path, std::string name) : path_(std::move(path)), name_(std::move(name)) {}
  const std::string& name() const { return name_; }

  void PrintTail(uint32_t lines, int width) {
    std::deque<std::string> tail;
    ReadNew([&](const std::string& line) {
      tail.push_back(line);
      if (tail.size() > lines) tail.pop_front();
    });
    for (const std::string& line : tail) Print(line, width);
  }
  void PrintNew(int width) {
    ReadNew([&](const std::string& line) { Print(line, width); });
  }

 private:
  template <class F>
  void ReadNew(F on_line) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(path_, error);
    if (error) return;
    if (size < offset_) offset_ = 0;  // a new run began
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset_));
    for (std::string line; std::getline(file, line);) {
      if (file.eof()) break;  // not whole yet
      offset_ += line.size() + 1;
      on_line(line);
    }
  }
  void Print(const std::string& line, int width) const {
    std::printf("%-*s | %s\n", width, name_.c_str(), line.c_str());
  }

  const std::string path_;
  const std::string name_;
  uintmax_t offset_ = 0;
};

// All logs, or those of the processes called `which` or of that role.
std::vector<LogFile> Choose(const StateFolder& folder, const std::string& which) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/logs", error)) {
    if (entry.path().extension() == ".log") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<LogFile> files;
  for (const std::string& name : names) {
    const std::string role = name.substr(0, name.find_last_of('-'));
    if (which.empty() || name == which || role == which) files.emplace_back(folder.log_path(name), name);
  }
  return files;
}

}  // namespace

int RunLogs(const std::vector<std::string>& arguments) {
  std::string name = "default";
  bool follow = false;
  uint32_t lines = 50;
  config::Schema schema(
      "millrace logs", "[ROLE | PROCESS] [flags]",
      "Prints the end of the logs of a cluster's processes: all, those of a role (prefill), or of one "
      "process (prefill-0).");
  schema.AllowPositional(1, "ROLE | PROCESS", "whose logs; none = all");
  schema.Add("name", &name, {.help = "name of the cluster"});
  schema.Add("follow", &follow, {.help = "go on printing what comes, until Ctrl-C; also -f"});
  schema.Add("lines", &lines, {.help = "lines of each log"});
  std::vector<std::string> words = arguments;
  std::replace(words.begin(), words.end(), std::string("-f"), std::string("--follow"));
  const ParsedCommand parsed = ParseCommand(schema, words);
  if (parsed.over) return parsed.exit_status;

  const StatusOr<StateFolder> folder = StateFolder::Locate(name);
  if (!folder.ok()) return Fail("logs", folder.status());
  const std::string which = parsed.positional.empty() ? "" : parsed.positional[0];
  std::vector<LogFile> files = Choose(*folder, which);
  if (files.empty()) {
    return Fail("logs", NotFound("no log of " + (which.empty() ? "cluster '" + name + "'" : "'" + which + "'") +
                                 " in " + folder->path() + "/logs"));
  }
  size_t width = 0;
  for (const LogFile& file : files) width = std::max(width, file.name().size());
  for (LogFile& file : files) file.PrintTail(lines, static_cast<int>(width));
  while (follow) {
    std::fflush(stdout);
    std::this_thread::sleep_for(kFollowInterval);
    for (LogFile& file : files) file.PrintNew(static_cast<int>(width));
  }
  return 0;
}

}  // namespace millrace::cli
