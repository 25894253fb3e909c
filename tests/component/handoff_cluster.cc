#include "tests/component/handoff_cluster.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/store/memory/memory_tier.h"

namespace millrace::component {

HandoffCluster::HandoffCluster(HandoffClusterOptions options)
    : options_(std::move(options)), time_(options_.seed), gateway_(time_.Add("gateway")), fabric_(time_.Add("fabric")) {
  SetLogSink([](LogLevel, std::string_view, const LogField*, size_t) {}, LogLevel::kError);  // faults are many here
  support::VirtualExecutor& balancers = time_.Add("balancers");
  for (const char* address : {"balancer-0", "balancer-1"}) {
    network_.Serve<peer::PickProtocol>(address, balancers, balancer_);
  }
  if (options_.store) StartStore();
  for (size_t i = 0; i < options_.decode_workers; ++i) StartDecode(i);
  for (size_t i = 0; i < options_.prefill_workers; ++i) StartPrefill(i);
  prefill_dialer_ = network_.MakeDialer<peer::PrefillProtocol>(gateway_, "gateway");
  decode_dialer_ = network_.MakeDialer<peer::DecodeProtocol>(gateway_, "gateway");
}

HandoffCluster::~HandoffCluster() = default;

void HandoffCluster::StartProcess(WorkerProcess& process, const std::string& name,
                                  const support::FakeBackendOptions& backend) {
  process.name = name;
  for (const char* thread : {"-control", "-engine", "-checksum", "-blocking"}) {
    process.executors.push_back(&time_.Add(name + thread));
  }
  process.backend = std::make_unique<support::FakeBackend>(backend);
  process.metrics = MakeMemoryMetrics();
  process.transport = fabric_.MakeTransport(name);
  process.region = std::move(process.transport->Register(process.backend->kv_memory())).value();
  if (!store_) return;
  process.store_dialer = network_.MakeDialer<peer::StoreProtocol>(process.control(), name);
  runtime::StoreClientOptions options;
  options.incarnation = process.incarnation;
  options.layout_digest = process.backend->layout().Digest();
  options.block_bytes = process.backend->layout().block_bytes();
  options.kv_memory = process.backend->kv_memory();
  options.memory = {process.transport->address(), process.region->descriptor()};
  process.store = std::make_unique<runtime::StoreClient>(
      runtime::StoreClientWiring{process.control(), process.blocking(), *process.store_dialer, store_addresses_,
                                 *process.transport, *process.metrics},
      options);
}

void HandoffCluster::StartStore() {
  store_ = std::make_unique<TestStore>();
  store_->name = "store";
  store_->incarnation = 300;
  for (const char* thread : {"store-control", "store-reader", "store-writer", "store-teardown"}) {
    store_->executors.push_back(&time_.Add(thread));
  }
  store_->metrics = MakeMemoryMetrics();
  store_->transport = fabric_.MakeTransport("store");
  store_->tier = std::move(store::OpenMemoryTier(
                               {.capacity_bytes = 16 << 20, .unix_seconds = [] { return int64_t{1'700'000'000}; }}))
                     .value();
  runtime::StoreRuntimeOptions options;
  options.incarnation = store_->incarnation;
  options.read_bytes = 1 << 20;
  options.staging_bytes = 1 << 20;
  store_->runtime = std::move(runtime::StoreRuntime::Make({.control = *store_->executors[0],
                                                           .readers = {store_->executors[1]},
                                                           .writer = *store_->executors[2],
                                                           .teardown = *store_->executors[3],
                                                           .tier = *store_->tier,
                                                           .transport = *store_->transport,
                                                           .metrics = *store_->metrics},
                                                          options))
                        .value();
  store_->runtime->Start();
  network_.Serve<peer::StoreProtocol>("store", store_->control(), *store_->runtime);
}

bool HandoffCluster::RunUntilStored() {
  const auto stored = [](WorkerProcess& process, const char* pending) {
    return process.killed || (process.store->connected() == 1 && process.Metric(pending) == 0);
  };
  return time_.RunUntil(
      [&] {
        return std::all_of(prefill_.begin(), prefill_.end(),
                           [&](const auto& p) { return stored(*p, "millrace_prefill_pending_puts_blocks"); }) &&
               std::all_of(decode_.begin(), decode_.end(),
                           [&](const auto& p) { return stored(*p, "millrace_decode_pending_puts_blocks"); });
      },
      Seconds(20));
}

void HandoffCluster::StartPrefill(size_t index) {
  auto process = std::make_unique<PrefillProcess>();
  process->incarnation = 100 + index;
  StartProcess(*process, "prefill-" + std::to_string(index), options_.prefill_backend);
  process->pick_dialer = network_.MakeDialer<peer::PickProtocol>(process->control(), process->name);
  process->handoff_dialer = network_.MakeDialer<peer::HandoffProtocol>(process->control(), process->name);
  runtime::PrefillOptions options = options_.prefill;
  options.incarnation = process->incarnation;
  options.memory = {process->transport->address(), process->region->descriptor()};
  process->runtime = std::make_unique<runtime::PrefillRuntime>(
      runtime::PrefillWiring{process->control(), process->engine(), process->checksum(), *process->backend,
                             *process->pick_dialer, balancer_addresses_, *process->handoff_dialer, process->store.get(),
                             *process->metrics},
      options);
  process->runtime->Start();
  network_.Serve<peer::PrefillProtocol>(process->name, process->control(), *process->runtime);
  prefill_known_.push_back({process->name, process->incarnation});
  prefill_.push_back(std::move(process));
}

void HandoffCluster::StartDecode(size_t index) {
  auto process = std::make_unique<DecodeProcess>();
  process->incarnation = 200 + index;
  StartProcess(*process, "decode-" + std::to_string(index), options_.decode_backend);
  runtime::DecodeOptions options = options_.decode;
  options.incarnation = process->incarnation;
  process->runtime = std::make_unique<runtime::DecodeRuntime>(
      runtime::DecodeWiring{process->control(), process->engine(), process->checksum(), process->blocking(),
                            *process->backend, *process->transport, process->store.get(), *process->metrics},
      options);
  process->runtime->Start();
  network_.Serve<peer::HandoffProtocol>(process->name, process->control(), *process->runtime);
  network_.Serve<peer::DecodeProtocol>(process->name, process->control(), *process->runtime);
  balancer_.workers.push_back({process->name, process->incarnation});
  decode_.push_back(std::move(process));
}

std::unique_ptr<TestRequest> HandoffCluster::Request(request::Generation generation, uint32_t retries) {
  auto request = std::make_unique<TestRequest>(
      GatewayWiring{gateway_, *prefill_dialer_, *decode_dialer_, prefill_known_}, std::move(generation), retries);
  request->Start();
  return request;
}

bool HandoffCluster::RunAll(const std::vector<TestRequest*>& requests, Duration within) {
  return time_.RunUntil(
      [&] {
        return std::all_of(requests.begin(), requests.end(), [](const auto* request) { return request->done(); });
      },
      within);
}

void HandoffCluster::SetStopped(WorkerProcess& process, bool stopped) {
  for (support::VirtualExecutor* executor : process.executors) executor->set_stopped(stopped);
}

void HandoffCluster::Kill(WorkerProcess& process) {
  process.killed = true;
  SetStopped(process, true);
  fabric_.Hold(process.name);
  network_.Kill(process.name);
  for (auto* known : {&prefill_known_, &balancer_.workers}) {
    for (Worker& worker : *known) worker.alive = worker.alive && worker.address != process.name;
  }
}

void HandoffCluster::Stall(WorkerProcess& process) {
  SetStopped(process, true);
  fabric_.Hold(process.name);
  network_.Stall(process.name);
}

void HandoffCluster::Resume(WorkerProcess& process) {
  SetStopped(process, false);
  fabric_.Release(process.name);
  network_.Resume(process.name);
}

std::string HandoffCluster::Leaks(Duration within) {
  for (const auto& process : prefill_) process->control().Post([&process] { process->runtime->Drain(); });
  for (const auto& process : decode_) process->control().Post([&process] { process->runtime->Drain(); });
  const auto idle = [](const auto& process) { return process->killed || process->runtime->idle(); };
  time_.RunUntil(
      [&] {
        return std::all_of(prefill_.begin(), prefill_.end(), idle) && std::all_of(decode_.begin(), decode_.end(), idle);
      },
      within);
  time_.Advance(Seconds(1));
  std::string leaks;
  const auto check = [&](WorkerProcess& process, const char* gauge) {
    if (process.killed || process.Metric(gauge) == 0) return;
    leaks += process.name + " " + gauge + "=" + std::to_string(process.Metric(gauge)) + "; ";
  };
  for (const auto& process : prefill_) {
    for (const char* gauge :
         {"millrace_prefill_sessions", "millrace_prefill_waiting_requests", "millrace_prefill_held_blocks",
          "millrace_prefill_handoffs", "millrace_prefill_pending_puts_blocks"}) {
      check(*process, gauge);
    }
    if (!process->killed && !process->runtime->idle()) leaks += process->name + " not idle; ";
  }
  for (const auto& process : decode_) {
    for (const char* gauge : {"millrace_decode_sessions", "millrace_decode_reservations", "millrace_decode_held_blocks",
                              "millrace_decode_links", "millrace_decode_pending_puts_blocks"}) {
      check(*process, gauge);
    }
    if (!process->killed && !process->runtime->idle()) leaks += process->name + " not idle; ";
  }
  return leaks;
}

request::Generation MakeGeneration(uint32_t prompt_tokens, uint32_t new_tokens, uint64_t seed, uint64_t prompt_seed) {
  request::Generation generation;
  generation.request_id = "request-" + std::to_string(prompt_seed);
  generation.tokens = support::FakePrompt(prompt_tokens, prompt_seed);
  generation.prompt_tokens = prompt_tokens;
  generation.max_new_tokens = new_tokens;
  generation.sampling.temperature = seed == 0 ? 0.0f : 0.9f;
  if (seed != 0) {
    generation.sampling.top_k = 40;
    generation.sampling.frequency_penalty = 0.3f;
    generation.sampling.repetition_penalty = 1.1f;
  }
  generation.sampling.seed = seed;
  return generation;
}

}  // namespace millrace::component
