#include <signal.h>

#include <cstdio>

#include "services/cli/commands.h"
#include "services/cli/state_folder.h"

namespace millrace::cli {

int RunDown(const std::vector<std::string>& arguments) {
  std::string name = "default";
  Duration timeout = Seconds(60);
  config::Schema schema("millrace down", "[flags]", "Stops a cluster of this machine and waits until it is gone.");
  schema.Add("name", &name, {.help = "name of the cluster"});
  schema.Add("timeout-ms", &timeout, {.help = "then what still runs is killed"});
  const ParsedCommand parsed = ParseCommand(schema, arguments);
  if (parsed.over) return parsed.exit_status;

  const StatusOr<StateFolder> folder = StateFolder::Locate(name);
  if (!folder.ok()) return Fail("down", folder.status());
  const StatusOr<ClusterRecord> record = folder->Read();
  if (!record.ok()) return Fail("down", record.status());
  if (SignalProcess(record->supervisor, SIGTERM).ok() && !WaitForEnd(record->supervisor, timeout)) {
    std::fprintf(stderr, "millrace down: not stopped in time; killing it\n");
    if (SignalProcess(record->supervisor, SIGKILL).ok()) WaitForEnd(record->supervisor, Seconds(5));
  }
  // A supervisor that ended well left nothing; one that did not left its record.
  folder->KillLeftovers();
  folder->Forget();
  std::printf("stopped\n");
  return 0;
}

}  // namespace millrace::cli
