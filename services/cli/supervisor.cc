#include "services/cli/supervisor.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <utility>

#include "services/cli/process_status.h"

namespace millrace::cli {
namespace {

constexpr Duration kPoll = Milliseconds(100);
constexpr Duration kBackoffFirst = Milliseconds(200);
constexpr Duration kBackoffMost = Seconds(5);
constexpr Duration kHealthyAfter = Seconds(10);  // a process that ran so long starts afresh with its backoff
constexpr Duration kKillPatience = Seconds(5);
constexpr uint32_t kMaxEarlyFailures = 3;
constexpr size_t kLogTailLines = 12;

std::string LogTail(const std::string& path) {
  std::ifstream file(path);
  std::deque<std::string> tail;
  for (std::string line; std::getline(file, line);) {
    tail.push_back(line);
    if (tail.size() > kLogTailLines) tail.pop_front();
  }
  std::string text;
  for (const std::string& line : tail) text += "\n  | " + line;
  return text;
}

bool OneOf(const std::vector<std::string>& roles, const std::string& role) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

}  // namespace

Supervisor::Supervisor(UpConfig config, StateFolder folder, std::string programs, Report report)
    : config_(std::move(config)),
      folder_(std::move(folder)),
      programs_(std::move(programs)),
      report_(std::move(report)) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  for (ProcessPlan& plan : PlanProcesses(config_)) {
    Child child;
    child.plan = std::move(plan);
    if (child.plan.role == "gateway") child.ports.http = config_.port;
    children_.push_back(std::move(child));
  }
  record_.host = "127.0.0.1";
  record_.model = config_.model;
}

Supervisor::~Supervisor() {
  for (const Child& child : children_) {
    if (child.process.pid != 0) kill(child.process.pid, SIGKILL);
  }
  if (signal_fd_ >= 0) close(signal_fd_);
}

LaunchContext Supervisor::ContextFor(const Child& child) const {
  LaunchContext context;
  context.ready_file = folder_.ready_path(child.plan.name);
  context.store_path = folder_.store_path(child.plan.name);
  context.ports = child.ports;
  for (const Child& other : children_) {
    if (other.ports.grpc != 0) {
      context.addresses[other.plan.role].push_back("127.0.0.1:" + std::to_string(other.ports.grpc));
    }
  }
  return context;
}

Status Supervisor::Launch(Child& child) {
  unlink(folder_.ready_path(child.plan.name).c_str());
  child.serving = false;
  child.restart_at = kNever;
  child.started = SystemClock().Now();
  MR_ASSIGN_OR_RETURN(child.process,
                      Spawn({programs_ + "/" + child.plan.program, Arguments(child.plan, config_, ContextFor(child)),
                             folder_.log_path(child.plan.name)}));
  return OkStatus();
}

Status Supervisor::LaunchStage(Stage stage) {
  for (Child& child : children_) {
    if (child.plan.stage == stage) MR_RETURN_IF_ERROR(Launch(child));
  }
  SaveRecord();
  return OkStatus();
}

void Supervisor::SaveRecord() {
  record_.processes.clear();
  for (const Child& child : children_) {
    record_.processes.push_back({child.plan.name, child.plan.role, child.process, child.restarts});
  }
  if (const Status status = folder_.Write(record_); !status.ok()) report_(status.ToString(), false);
}

Supervisor::Wake Supervisor::Step(Duration timeout) {
  pollfd wait{signal_fd_, POLLIN, 0};
  poll(&wait, 1, static_cast<int>(timeout / Milliseconds(1)));
  Wake wake = Wake::kTime;
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD) {
      if (wake == Wake::kTime) wake = Wake::kChild;
    } else {
      ++stop_signals_;
    }
  }
  CollectEnded();
  return stop_signals_ > 0 ? Wake::kStop : wake;
}

void Supervisor::CollectEnded() {
  bool changed = false;
  while (const std::optional<ChildExit> ended = CollectChild()) {
    const auto child =
        std::find_if(children_.begin(), children_.end(), [&](const Child& c) { return c.process.pid == ended->pid; });
    if (child == children_.end()) continue;
    const TimePoint now = SystemClock().Now();
    child->failures = child->serving && now - child->started >= kHealthyAfter ? 1 : child->failures + 1;
    const Duration backoff =
        std::min(kBackoffMost, kBackoffFirst * (int64_t{1} << std::min<uint32_t>(child->failures - 1, 10)));
    child->process = {};
    child->serving = false;
    child->wrong_usage = ended->WrongUsage();
    child->restart_at = now + backoff;
    changed = true;
    if (stop_signals_ == 0) report_(child->plan.name + " " + ended->Describe(), false);
  }
  if (changed) SaveRecord();
}

void Supervisor::RestartDue() {
  const TimePoint now = SystemClock().Now();
  bool changed = false;
  for (Child& child : children_) {
    if (child.process.pid != 0 || child.restart_at > now) continue;
    ++child.restarts;
    changed = true;
    if (const Status status = Launch(child); !status.ok()) {
      report_(child.plan.name + ": " + status.message(), false);
      child.restart_at = now + kBackoffMost;
    }
  }
  if (changed) SaveRecord();
}

void Supervisor::ReadReadyFiles() {
  for (Child& child : children_) {
    if (child.process.pid == 0 || child.serving) continue;
    const StatusOr<ReadyRecord> ready = folder_.ReadReady(child.plan.name);
    if (!ready.ok() || ready->pid != child.process.pid) continue;
    child.ports.admin = ready->admin_port;
    if (!ready->serving) continue;
    child.serving = true;
    child.served_once = true;
    child.ports.grpc = ready->grpc_port;
    if (child.plan.role != "gateway") continue;
    child.ports.http = ready->http_port;
    const std::string host = ReachableHost(config_.host);
    record_.endpoint = "http://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" +
                       std::to_string(ready->http_port);
  }
}

Status Supervisor::FirstFailure() const {
  for (const Child& child : children_) {
    if (child.served_once || child.failures == 0) continue;
    const std::string log = folder_.log_path(child.plan.name);
    if (child.wrong_usage) {
      return Status(Code::kInvalidArgument, Reason::kBadValue, child.plan.name + " refuses its flags:" + LogTail(log));
    }
    // Without an address of its own to come back to, a process that never served fails again the same way.
    if (child.failures < kMaxEarlyFailures && child.plan.role != "gateway") continue;
    return FailedPrecondition(child.plan.name + " does not start; the end of " + log + ":" + LogTail(log));
  }
  return OkStatus();
}

bool Supervisor::StageServes(Stage stage) const {
  return std::all_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return child.plan.stage != stage || child.serving; });
}

std::string Supervisor::NotReady() {
  std::string text;
  size_t ready = 0;
  for (const Child& child : children_) {
    const ProcessStatus status = child.process.pid == 0 || child.ports.admin == 0
                                     ? ProcessStatus{}
                                     : FetchStatus(record_.host, child.ports.admin);
    if (child.serving && status.ready) {
      ++ready;
    } else {
      text += (text.empty() ? "" : ", ") + child.plan.name + " " + (status.phase.empty() ? "starting" : status.phase);
    }
  }
  if (text.empty()) return text;
  return std::to_string(ready) + "/" + std::to_string(children_.size()) + " ready; " + text;
}

Status Supervisor::WaitUntil(const std::function<bool()>& done, TimePoint deadline) {
  while (true) {
    if (Step(kPoll) == Wake::kStop) return Cancelled("told to stop");
    ReadReadyFiles();
    MR_RETURN_IF_ERROR(FirstFailure());
    RestartDue();
    if (done()) return OkStatus();
    if (SystemClock().Now() >= deadline) {
      return Status(Code::kDeadlineExceeded, Reason::kDeadline,
                    "not ready after " + std::to_string(config_.start_timeout / Seconds(1)) +
                        " s (--start-timeout-ms): " + NotReady() + "; logs are in " + folder_.path() + "/logs");
    }
  }
}

Status Supervisor::Start() {
  MR_ASSIGN_OR_RETURN(record_.supervisor, IdentifyProcess(getpid()));
  const TimePoint deadline = SystemClock().Now() + config_.start_timeout;
  report_("starting " + std::to_string(children_.size()) + " processes", false);
  MR_RETURN_IF_ERROR(LaunchStage(Stage::kFirst));
  MR_RETURN_IF_ERROR(WaitUntil([&] { return StageServes(Stage::kFirst); }, deadline));
  MR_RETURN_IF_ERROR(LaunchStage(Stage::kSecond));
  std::string last;
  MR_RETURN_IF_ERROR(WaitUntil(
      [&] {
        const std::string waiting = NotReady();
        if (waiting.empty()) return true;
        if (waiting != last) report_(waiting, true);
        last = waiting;
        return false;
      },
      deadline));
  SaveRecord();
  return OkStatus();
}

void Supervisor::Run() {
  while (true) {
    TimePoint next = kNever;
    bool starting = false;
    for (const Child& child : children_) {
      next = std::min(next, child.restart_at);
      starting = starting || !child.serving;
    }
    Duration wait = starting ? kPoll : Seconds(60);
    if (next != kNever) wait = std::clamp<Duration>(next - SystemClock().Now(), Milliseconds(1), wait);
    if (Step(wait) == Wake::kStop) return;
    ReadReadyFiles();
    RestartDue();
  }
}

bool Supervisor::AnyRunning(const std::vector<std::string>& roles) const {
  return std::any_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return child.process.pid != 0 && OneOf(roles, child.plan.role); });
}

void Supervisor::StopGroup(const std::vector<std::string>& roles, Duration patience) {
  const auto signal = [&](int number) {
    for (const Child& child : children_) {
      if (child.process.pid != 0 && OneOf(roles, child.plan.role)) kill(child.process.pid, number);
    }
  };
  const int signals_before = stop_signals_;
  const auto wait = [&](TimePoint deadline) {
    while (AnyRunning(roles) && stop_signals_ == signals_before && SystemClock().Now() < deadline) Step(kPoll);
  };
  // A stopped process cannot answer SIGTERM.
  signal(SIGTERM);
  signal(SIGCONT);
  wait(SystemClock().Now() + patience);
  if (!AnyRunning(roles)) return;
  signal(SIGKILL);
  const TimePoint deadline = SystemClock().Now() + kKillPatience;
  while (AnyRunning(roles) && SystemClock().Now() < deadline) Step(kPoll);
}

void Supervisor::Stop() {
  stop_signals_ = std::max(stop_signals_, 1);
  const Duration patience = config_.drain_timeout + Seconds(2);
  StopGroup({"gateway"}, patience);
  StopGroup({"prefill", "decode"}, patience);
  StopGroup({"prefill-balancer", "decode-balancer", "store"}, patience);
  folder_.Forget();
}

}  // namespace millrace::cli
