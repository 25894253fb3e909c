#include "services/balancer/service.h"

#include <algorithm>
#include <utility>

#include "common/base/random.h"
#include "common/runtime/balancer_runtime.h"

namespace millrace::balancer {
namespace {

struct Config {
  runtime::BalancerOptions options;

  void Describe(config::Schema& schema) {
    std::vector<std::string> names;
    std::string help = "how an instance is picked:";
    for (const policy::PolicyDescriptor* descriptor : policy::All()) {
      names.emplace_back(descriptor->name);
      help += " " + names.back() + " (" + std::string(descriptor->help) + ")";
    }
    schema.Add("policy", &options.policy, {.help = help, .choices = names});
    schema.Add("prefill-queue-limit", &options.policy_options.prefill_queue_limit,
               {.help = "requests queued at one prefill instance before picks wait here", .min = 1});
    schema.Add("decode-tokens-per-sequence", &options.policy_options.decode_tokens_per_sequence,
               {.help = "tokens of KV that slow a decode step as much as one more sequence", .min = 1});
    schema.Add("max-waiting-picks", &options.max_waiting_picks,
               {.help = "most picks that wait for room; more are refused as overloaded", .min = 1, .max = 1e6});
    schema.Add("max-wait-ms", &options.max_wait, {.help = "longest a pick waits for room", .min = 100});
    schema.Add("grace-ms", &options.grace,
               {.help = "how long picks wait for a pool that lost its last instance", .min = 0});
    schema.Add("heartbeat-ms", &options.liveness.heartbeat,
               {.help = "interval of heartbeats on every stream", .min = 10, .max = 60000});
    schema.Add("silence-ms", &options.liveness.silence,
               {.help = "an instance silent for so long is dead", .min = 50, .max = 600000});
    schema.Add("progress-ms", &options.liveness.progress,
               {.help = "an instance with work and no progress for so long is dead", .min = 50, .max = 600000});
  }

  Status Validate() const {
    if (options.liveness.silence >= 2 * options.liveness.heartbeat) return OkStatus();
    return Status(Code::kInvalidArgument, Reason::kBadValue, "--silence-ms must be at least twice --heartbeat-ms");
  }
};

class BalancerService final : public shell::Service {
 public:
  explicit BalancerService(std::unique_ptr<runtime::BalancerRuntime> runtime) : runtime_(std::move(runtime)) {}

  Status Start(const std::string&) override {
    runtime_->Start();
    return OkStatus();
  }
  // A balancer does its job with an empty pool too: it says that the pool is empty.
  bool Ready() override { return true; }
  std::vector<LogField> StatusFields() override {
    const std::vector<cluster::Instance> instances = runtime_->Instances();
    const auto ready = std::count_if(instances.begin(), instances.end(), [](const cluster::Instance& instance) {
      return instance.load.ready && !instance.load.draining;
    });
    return {{"instances", instances.size()}, {"ready_instances", ready}, {"waiting_picks", runtime_->waiting_picks()}};
  }
  void Drain(std::function<void()> done) override {
    runtime_->Drain();
    done();
  }

 private:
  std::unique_ptr<runtime::BalancerRuntime> runtime_;
};

StatusOr<std::unique_ptr<shell::Service>> Build(const Config& config, shell::Process& process) {
  MR_RETURN_IF_ERROR(config.Validate());
  MR_ASSIGN_OR_RETURN(std::unique_ptr<runtime::BalancerRuntime> runtime,
                      runtime::BalancerRuntime::Make(config.options, process.control(), process.metrics()));
  process.rpc_server().AddService<peer::ReportProtocol>(*runtime, process.control());
  process.rpc_server().AddService<peer::PickProtocol>(*runtime, process.control());
  process.rpc_server().AddService<peer::WatchProtocol>(*runtime, process.control());
  return std::unique_ptr<shell::Service>(std::make_unique<BalancerService>(std::move(runtime)));
}

}  // namespace

int Main(const shell::Program& program, cluster::Role pool, int argc, char** argv) {
  Config config;
  config.options.role = pool;
  config.options.seed = RandomSeed();
  return shell::Main(
      program, [&](config::Schema& schema) { config.Describe(schema); },
      [&](shell::Process& process) { return Build(config, process); }, argc, argv);
}

}  // namespace millrace::balancer
