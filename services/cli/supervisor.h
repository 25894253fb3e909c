#pragma once
// Supervisor: starts the processes of a local cluster, restarts those that end, and stops them all. Single-threaded and
// blocking: it is the whole of a `millrace up` process. Its children die with the thread that calls Start.

#include <signal.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/time.h"
#include "services/cli/child_process.h"
#include "services/cli/state_folder.h"
#include "services/cli/topology.h"

namespace millrace::cli {

class Supervisor {
 public:
  // A line for people; `transient` ones may be overwritten by the next.
  using Report = std::function<void(const std::string& line, bool transient)>;

  // `folder` is created and locked by the caller. `programs` is the folder of the binaries. Blocks SIGCHLD, SIGTERM,
  // SIGINT and SIGHUP in the calling thread.
  Supervisor(UpConfig config, StateFolder folder, std::string programs, Report report);
  ~Supervisor();  // kills what still runs

  // Returns when the cluster answers requests. kCancelled: told to stop by a signal. Otherwise an error with the end of
  // the log of the process to blame, kInvalidArgument when that refused its flags. Whatever it returns, Stop comes next
  // or after Run.
  Status Start();
  // Restarts what ends, until a signal says to stop.
  void Run();
  // Gateway first, then workers, then the rest; each group is asked, waited for, and killed when it does not end. A
  // second signal kills at once.
  void Stop();

  const std::string& endpoint() const { return record_.endpoint; }

 private:
  struct Child {
    ProcessPlan plan;
    ProcessIdentity process;  // pid 0 = not running
    PortRequest ports;        // as it told
    bool serving = false;     // since its last start
    bool served_once = false;
    bool wrong_usage = false;  // its last end was a refusal of its flags
    uint32_t failures = 0;     // starts in a row that ended early
    uint32_t restarts = 0;
    TimePoint started;
    TimePoint restart_at = kNever;
  };
  enum class Wake : uint8_t { kTime, kChild, kStop };

  Status Launch(Child& child);
  Status LaunchStage(Stage stage);
  LaunchContext ContextFor(const Child& child) const;
  // Waits until something happened or `timeout` passed, collects ended children and restarts due ones.
  Wake Step(Duration timeout);
  void CollectEnded();
  void RestartDue();
  void ReadReadyFiles();
  Status FirstFailure() const;
  bool StageServes(Stage stage) const;
  // Phases of the processes that are not ready; empty = the cluster is.
  std::string NotReady();
  Status WaitUntil(const std::function<bool()>& done, TimePoint deadline);
  void StopGroup(const std::vector<std::string>& roles, Duration patience);
  bool AnyRunning(const std::vector<std::string>& roles) const;
  void SaveRecord();

  const UpConfig config_;
  const StateFolder folder_;
  const std::string programs_;
  const Report report_;
  std::vector<Child> children_;
  ClusterRecord record_;
  int signal_fd_ = -1;
  int stop_signals_ = 0;
};

}  // namespace millrace::cli
