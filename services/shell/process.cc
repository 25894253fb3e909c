#include "services/shell/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/base/event_loop.h"
#include "common/base/random.h"
#include "common/http/server.h"
#include "common/telemetry/log_sink.h"
#include "common/telemetry/prometheus_metrics.h"
#include "services/shell/admin.h"

namespace millrace::shell {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kReadyPoll = Milliseconds(250);
constexpr Duration kCutShortLimit = Seconds(1);  // for errors to be told after the drain timeout

Json FieldsToJson(const std::vector<LogField>& fields) {
  Json object = Json::object();
  for (const LogField& field : fields) {
    Json value = field.value;
    if (field.is_number) {
      Json number = Json::parse(field.value, nullptr, false);
      if (number.is_number()) value = std::move(number);
    }
    object[field.key] = std::move(value);
  }
  return object;
}

// Atomically replaces `path`.
Status WriteFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  {
    std::ofstream stream(temporary);
    stream << text;
    if (!stream.flush()) return ErrnoStatus(errno, "write " + temporary);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename to " + path);
  return OkStatus();
}

class RunningProcess final : public Process {
 public:
  RunningProcess(const Program& program, CommonConfig common)
      : program_(program), common_(std::move(common)), incarnation_(RandomSeed()), control_("control") {
    if (common_.name.empty()) {
      common_.name = std::string(cluster::RoleName(program.role)) + "-" + std::to_string(getpid());
    }
    ready_gauge_ = &metrics_.AddGauge("millrace_process_ready", "1 when the process can do its job now.");
    metrics_.AddGauge("millrace_process_start_time_seconds", "Unix time of the start.")
        .Set(static_cast<double>(WallClockMs()) / 1e3);
    resident_ = &metrics_.AddGauge("process_resident_memory_bytes", "Resident memory.");
  }

  Executor& control() override { return control_; }
  MetricRegistry& metrics() override { return metrics_; }
  cluster::Incarnation incarnation() const override { return incarnation_; }
  const CommonConfig& common() const override { return common_; }
  rpc::Server& rpc_server() override { return rpc_server_; }
  void SetPhase(const std::string& phase) override {
    std::lock_guard lock(phase_mutex_);
    phase_ = phase;
  }

  Status Start(const Builder& build);
  // Drains and ends; true when the service drained in time.
  bool Stop();

 private:
  // Runs `task` on the control executor and waits for it.
  template <class F>
  auto OnControl(F task) {
    std::packaged_task<decltype(task())()> packaged(std::move(task));
    auto result = packaged.get_future();
    control_.Post([&packaged] { packaged(); });
    return result.get();
  }

  std::string phase() const {
    std::lock_guard lock(phase_mutex_);
    return phase_;
  }
  // Whether the process can do its job now. The one place that asks: gRPC health and the gauge say the same from here
  // on.
  bool UpdateReady();
  void PollReady();
  std::string StatusJson();
  std::string Metrics();
  Status WriteReadyFile();

  const Program& program_;
  CommonConfig common_;
  const cluster::Incarnation incarnation_;
  telemetry::PrometheusMetrics metrics_;
  Gauge* ready_gauge_ = nullptr;
  Gauge* resident_ = nullptr;
  mutable std::mutex phase_mutex_;
  std::string phase_ = "starting";  // guarded by phase_mutex_
  EventLoop control_;
  rpc::Server rpc_server_;
  std::unique_ptr<http::Server> admin_;
  // On the control executor from here:
  std::unique_ptr<Service> service_;
  bool started_ = false;
  bool draining_ = false;
  bool was_ready_ = false;
  uint16_t grpc_port_ = 0;
};

Status RunningProcess::Start(const Builder& build) {
  AdminSources sources{.ready = [this] { return UpdateReady(); },
                       .phase = [this] { return phase(); },
                       .metrics = [this] { return Metrics(); },
                       .status_json = [this] { return StatusJson(); }};
  auto admin = StartAdminServer(common_.host, common_.admin_port, control_, std::move(sources));
  if (!admin.ok()) return admin.status().Annotate("admin server (--host, --admin-port)");
  admin_ = *std::move(admin);
  MR_RETURN_IF_ERROR(WriteReadyFile());

  SetPhase("loading");
  auto service = build(*this);
  if (!service.ok()) return std::move(service).status();
  auto port = rpc_server_.Start(common_.host, common_.grpc_port);
  if (!port.ok()) {
    OnControl([&] { service->reset(); });
    return port.status().Annotate("gRPC server (--host, --" + program_.grpc_port_flag + ")");
  }
  MR_RETURN_IF_ERROR(OnControl([&]() -> Status {
    service_ = *std::move(service);
    grpc_port_ = *port;
    SetPhase("waiting for what it needs");
    if (Status status = service_->Start(common_.AdvertisedAddress(grpc_port_)); !status.ok()) {
      service_.reset();
      return status;
    }
    started_ = true;
    PollReady();
    return OkStatus();
  }));
  MR_RETURN_IF_ERROR(WriteReadyFile());
  Log(LogLevel::kInfo, "started",
      {{"name", common_.name},
       {"pid", getpid()},
       {"grpc_port", grpc_port_},
       {"admin_port", admin_->port()},
       {"incarnation", incarnation_}});
  return OkStatus();
}

bool RunningProcess::Stop() {
  Log(LogLevel::kInfo, "draining", {{"timeout_ms", ToMilliseconds(common_.drain_timeout)}});
  auto drained = std::make_shared<std::promise<void>>();
  auto done = drained->get_future();
  OnControl([&] {
    draining_ = true;
    SetPhase("draining");
    UpdateReady();
    auto once = std::make_shared<bool>(false);
    service_->Drain([drained, once] {
      if (!std::exchange(*once, true)) drained->set_value();
    });
  });
  // A second signal cuts the drain short.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const TimePoint deadline = SystemClock().Now() + common_.drain_timeout;
  bool in_time = false;
  while (SystemClock().Now() < deadline) {
    if (done.wait_for(std::chrono::milliseconds(20)) == std::future_status::ready) {
      in_time = true;
      break;
    }
    const timespec none{};
    if (sigtimedwait(&signals, nullptr, &none) > 0) break;
  }
  if (!in_time) {
    Log(LogLevel::kWarning, "drain_cut_short");
    OnControl([&] { service_->CutShort(); });
    done.wait_for(kCutShortLimit);
  }
  rpc_server_.Shutdown(Milliseconds(200));
  OnControl([&] { service_.reset(); });
  admin_->Stop();
  control_.Stop();
  Log(LogLevel::kInfo, "stopped");
  return in_time;
}

bool RunningProcess::UpdateReady() {
  const bool now = started_ && !draining_ && service_ != nullptr && service_->Ready();
  if (now != was_ready_) {
    was_ready_ = now;
    rpc_server_.SetServing(now);
    ready_gauge_->Set(now ? 1 : 0);
    Log(LogLevel::kInfo, now ? "ready" : "not_ready", {{"name", common_.name}});
  }
  return now;
}

void RunningProcess::PollReady() {
  UpdateReady();
  control_.PostAt(NextBeat(control_.Now(), kReadyPoll), [this] { PollReady(); });
}

std::string RunningProcess::StatusJson() {
  const bool ready = UpdateReady();
  Json status = {{"program", program_.name},
                 {"role", std::string(cluster::RoleName(program_.role))},
                 {"name", common_.name},
                 {"pid", getpid()},
                 {"incarnation", std::to_string(incarnation_)},
                 {"ready", ready},
                 {"draining", draining_},
                 {"phase", ready ? "ready" : phase()},
                 {"grpc_port", grpc_port_},
                 {"admin_port", admin_ == nullptr ? 0 : admin_->port()}};
  status["load"] = service_ == nullptr ? Json::object() : FieldsToJson(service_->StatusFields());
  if (started_) {
    for (const LogField& port : service_->Ports()) status[port.key] = Json::parse(port.value, nullptr, false);
  }
  return status.dump() + "\n";
}

std::string RunningProcess::Metrics() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  if (statm >> total_pages >> resident_pages) {
    resident_->Set(static_cast<double>(resident_pages) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  return metrics_.Serialize();
}

Status RunningProcess::WriteReadyFile() {
  if (common_.ready_file.empty()) return OkStatus();
  return OnControl([&] {
    Json ready = {{"pid", getpid()},
                  {"name", common_.name},
                  {"role", std::string(cluster::RoleName(program_.role))},
                  {"stage", started_ ? "serving" : "loading"},
                  {"incarnation", std::to_string(incarnation_)},
                  {"admin_port", admin_->port()}};
    if (started_) {
      ready["grpc_port"] = grpc_port_;
      for (const LogField& port : service_->Ports()) ready[port.key] = Json::parse(port.value, nullptr, false);
    }
    return WriteFile(common_.ready_file, ready.dump() + "\n");
  });
}

}  // namespace

void CommonConfig::Describe(config::Schema& schema, const Program& program) {
  schema.Add("host", &host, {.help = "address to listen on"});
  schema.Add("advertise-host", &advertise_host,
             {.help = "address or name by which peers reach this process; empty = --host"});
  schema.Add(program.grpc_port_flag, &grpc_port, {.help = "gRPC port; 0 = any free one"});
  schema.Add("admin-port", &admin_port, {.help = "port of /healthz, /readyz, /metrics and /statusz; 0 = any free one"});
  schema.Add("name", &name, {.help = "instance name, unique in its pool; empty = role and pid"});
  schema.Add("ready-file", &ready_file, {.help = "file that gets pid, ports and incarnation as JSON; empty = none"});
  schema.Add("log-level", &log_level, {.help = "least level logged", .choices = {"debug", "info", "warning", "error"}});
  schema.Add("log-format", &log_format, {.help = "form of a log line", .choices = {"text", "json"}});
  schema.Add("drain-timeout-ms", &drain_timeout, {.help = "longest wait for work under way after SIGTERM"});
}

Status CommonConfig::Validate() const {
  if (advertise_host.empty() && (host == "0.0.0.0" || host == "::")) {
    return Status(Code::kInvalidArgument, Reason::kMissing,
                  "--host " + host + " listens everywhere: say with --advertise-host how peers reach this process");
  }
  return OkStatus();
}

bool CommonConfig::OnLoopback() const { return http::IsLoopback(host); }

std::string CommonConfig::AdvertisedAddress(uint16_t port) const {
  const std::string& reached = advertise_host.empty() ? host : advertise_host;
  const bool ipv6 = reached.find(':') != std::string::npos && reached.front() != '[';
  return (ipv6 ? "[" + reached + "]" : reached) + ":" + std::to_string(port);
}

int Main(const Program& program, const Describe& describe, const Builder& build, int argc, char** argv) {
  // Before any thread exists, so that all inherit the mask and only the main thread takes these signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  CommonConfig common;
  config::Schema schema(program.name, "[flags]", program.summary);
  common.Describe(schema, program);
  describe(schema);
  auto parsed =
      schema.Parse({argv + 1, argv + argc}, [](const char* name) -> const char* { return std::getenv(name); });
  Status status = parsed.ok() ? OkStatus() : parsed.status();
  if (status.ok() && parsed->outcome == config::Outcome::kExit) {
    std::fputs(parsed->output.c_str(), stdout);
    return 0;
  }
  if (status.ok()) status = common.Validate();
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), status.message().c_str());
    return 2;
  }
  telemetry::InstallLogSink(common.log_format == "json" ? telemetry::LogFormat::kJson : telemetry::LogFormat::kText,
                            telemetry::ParseLogLevel(common.log_level), program.name);
  RunningProcess process(program, common);
  if (status = process.Start(build); !status.ok()) {
    Log(LogLevel::kError, "start_failed", {{"error", status.ToString()}});
    const bool bad_settings = status.reason() == Reason::kBadValue || status.reason() == Reason::kMissing;
    // Threads of a half-built service may be running: end without unwinding under them.
    std::_Exit(bad_settings ? 2 : 1);
  }
  int signal_number = 0;
  while (sigwait(&signals, &signal_number) != 0) {
  }
  const bool drained = process.Stop();
  // What libraries would do at exit on their own threads is not waited for.
  std::fflush(nullptr);
  std::_Exit(drained ? 0 : 1);
}

}  // namespace millrace::shell
