#include "services/worker/parts.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/engine/cpu_backend.h"
#include "common/rpc/dialer.h"

namespace millrace::worker {
namespace {

constexpr Duration kIdlePoll = Milliseconds(20);

}  // namespace

WorkerParts::WorkerParts(const WorkerConfig& config, shell::Process& process)
    : config_(config), metrics_(process.metrics()), control_(process.control()) {}

StatusOr<std::unique_ptr<WorkerParts>> WorkerParts::Open(const WorkerConfig& config, shell::Process& process) {
  MR_RETURN_IF_ERROR(config.Validate());
  std::unique_ptr<WorkerParts> parts(new WorkerParts(config, process));
  MR_RETURN_IF_ERROR(parts->Load(process));
  MR_ASSIGN_OR_RETURN(parts->balancers_, rpc::DnsAddresses::Create(config.balancers));
  parts->report_dialer_ = rpc::MakeDialer<peer::ReportProtocol>(parts->control_);
  MR_RETURN_IF_ERROR(parts->OpenStores(process));
  return parts;
}

Status WorkerParts::Load(shell::Process& process) {
  MR_ASSIGN_OR_RETURN(transport_, config_.transport.Make(process.common().OnLoopback()));
  engine::CpuOptions options;
  options.model_path = config_.model;
  options.threads = config_.threads;
  MR_ASSIGN_OR_RETURN(options.isa, engine::cpu::ParseIsa(config_.isa));
  options.kv_bytes = config_.kv_memory.value;
  options.context_tokens = config_.context;
  options.cache_dir = config_.cache_dir;
  options.progress = [&process](uint64_t done, uint64_t total) {
    process.SetPhase("packing weights " + std::to_string(total == 0 ? 100 : 100 * done / total) + " %");
  };
  options.allocate_kv = [this](uint64_t bytes) -> StatusOr<std::span<std::byte>> {
    auto memory = transport_->Allocate(bytes);
    if (!memory.ok()) return memory.status().Annotate("KV memory (--kv-memory)");
    kv_memory_ = *std::move(memory);
    return kv_memory_->bytes().first(bytes);
  };
  auto backend = engine::OpenCpuBackend(options);
  if (!backend.ok()) return backend.status().Annotate("model " + config_.model + " (--model)");
  backend_ = *std::move(backend);
  if (config_.context > context_tokens()) {
    return Status(Code::kInvalidArgument, Reason::kBadValue,
                  "--context " + std::to_string(config_.context) + " does not fit --kv-memory " +
                      config::FormatBytes(config_.kv_memory.value) + ", which holds " +
                      std::to_string(context_tokens()) + " tokens of this model");
  }
  MR_ASSIGN_OR_RETURN(region_, transport_->Register(backend_->kv_memory()));
  Log(LogLevel::kInfo, "model_loaded",
      {{"model", config_.ModelName()},
       {"engine", backend_->description()},
       {"layout", backend_->layout().Digest()},
       {"context_tokens", context_tokens()},
       {"kv_blocks", backend_->block_count()},
       {"kv_memory", config::FormatBytes(backend_->kv_memory().size())}});
  return OkStatus();
}

Status WorkerParts::OpenStores(shell::Process& process) {
  if (config_.stores.empty()) return OkStatus();
  MR_ASSIGN_OR_RETURN(stores_, rpc::DnsAddresses::Create(config_.stores));
  store_dialer_ = rpc::MakeDialer<peer::StoreProtocol>(control_);
  runtime::StoreClientOptions options;
  options.incarnation = process.incarnation();
  options.layout_digest = backend_->layout().Digest();
  options.block_bytes = backend_->layout().block_bytes();
  options.kv_memory = backend_->kv_memory();
  options.memory = memory();
  options.liveness = config_.liveness;
  store_ = std::make_unique<runtime::StoreClient>(
      runtime::StoreClientWiring{control_, blocking_, *store_dialer_, *stores_, *transport_, metrics_}, options);
  return OkStatus();
}

uint32_t WorkerParts::context_tokens() const {
  const uint64_t held = uint64_t{backend_->block_count()} * kv::kBlockTokens;
  return static_cast<uint32_t>(std::min<uint64_t>(backend_->context_tokens(), held));
}

void WorkerParts::StartReports(const shell::Process& process, cluster::Role role, const std::string& address,
                               uint32_t max_sequences, std::function<cluster::Load()> load) {
  runtime::WorkerReporterOptions options;
  options.info.instance_id = process.common().name;
  options.info.incarnation = process.incarnation();
  options.info.role = role;
  options.info.address = address;
  options.info.model = {config_.ModelName(), backend_->layout().Digest(), context_tokens(),
                        backend_->layout().model_digest};
  options.info.max_sequences = max_sequences;
  options.info.total_blocks = backend_->block_count();
  options.liveness = config_.liveness;
  reporter_ = std::make_unique<runtime::WorkerReporter>(
      runtime::WorkerReporterWiring{control_, *report_dialer_, *balancers_, metrics_}, std::move(options),
      std::move(load));
  reporter_->Start();
}

void WorkerParts::WaitUntilIdle(std::function<bool()> idle, std::function<void()> done) {
  if (idle()) return done();
  control_.PostAfter(kIdlePoll, [this, idle = std::move(idle), done = std::move(done)] { WaitUntilIdle(idle, done); });
}

std::vector<LogField> WorkerParts::StatusFields(const cluster::Load& load) const {
  return {{"model", config_.ModelName()},
          {"engine", backend_->description()},
          {"context_tokens", context_tokens()},
          {"queued_requests", load.queued_requests},
          {"queued_tokens", load.queued_tokens},
          {"running", load.running},
          {"kv_tokens", load.kv_tokens},
          {"free_blocks", load.free_blocks},
          {"total_blocks", backend_->block_count()},
          {"tokens_per_second", load.tokens_per_second},
          {"balancers_connected", reporter_ == nullptr ? 0u : reporter_->connected()},
          {"stores_connected", store_ == nullptr ? 0u : store_->connected()}};
}

void WorkerParts::StopThreads() {
  engine_.Stop();
  checksum_.Stop();
  blocking_.Stop();
  control_.Close();
}

}  // namespace millrace::worker
