#include <memory>
#include <utility>

#include "common/rpc/dialer.h"
#include "services/prefill_worker/config.h"
#include "services/shell/process.h"
#include "services/worker/parts.h"

namespace millrace::prefill_worker {
namespace {

class PrefillService final : public shell::Service {
 public:
  PrefillService(shell::Process& process, std::unique_ptr<worker::WorkerParts> parts,
                 std::unique_ptr<rpc::DnsAddresses> decode_balancers, runtime::PrefillOptions options)
      : process_(process),
        parts_(std::move(parts)),
        decode_balancers_(std::move(decode_balancers)),
        pick_dialer_(rpc::MakeDialer<peer::PickProtocol>(parts_->control())),
        handoff_dialer_(rpc::MakeDialer<peer::HandoffProtocol>(parts_->control())),
        max_sequences_(options.most_sequences),
        runtime_(std::make_unique<runtime::PrefillRuntime>(
            runtime::PrefillWiring{parts_->control(), parts_->engine(), parts_->checksum(), parts_->backend(),
                                   *pick_dialer_, *decode_balancers_, *handoff_dialer_, parts_->store(),
                                   process.metrics()},
            std::move(options))) {
    process.rpc_server().AddService<peer::PrefillProtocol>(*runtime_, process.control());
  }

  ~PrefillService() override {
    parts_->StopThreads();
    runtime_ = nullptr;
  }

  Status Start(const std::string& address) override {
    runtime_->Start();
    parts_->StartReports(process_, cluster::Role::kPrefill, address, max_sequences_,
                         [this] { return runtime_->load(); });
    runtime_->set_on_load_change([this] { parts_->reporter()->Changed(); });
    return OkStatus();
  }
  bool Ready() override { return parts_->ready(); }
  std::vector<LogField> StatusFields() override { return parts_->StatusFields(runtime_->load()); }
  void Drain(std::function<void()> done) override {
    runtime_->Drain();
    parts_->WaitUntilIdle([this] { return runtime_->idle(); }, std::move(done));
  }

 private:
  shell::Process& process_;
  std::unique_ptr<worker::WorkerParts> parts_;
  std::unique_ptr<rpc::DnsAddresses> decode_balancers_;
  std::unique_ptr<peer::Dialer<peer::PickProtocol>> pick_dialer_;
  std::unique_ptr<peer::Dialer<peer::HandoffProtocol>> handoff_dialer_;
  const uint32_t max_sequences_;
  std::unique_ptr<runtime::PrefillRuntime> runtime_;
};

StatusOr<std::unique_ptr<shell::Service>> Build(const Config& config, shell::Process& process) {
  MR_ASSIGN_OR_RETURN(auto decode_balancers, rpc::DnsAddresses::Create(config.decode_balancers));
  MR_ASSIGN_OR_RETURN(auto parts, worker::WorkerParts::Open(config.worker, process));
  runtime::PrefillOptions options = config.runtime;
  options.incarnation = process.incarnation();
  options.memory = parts->memory();
  options.liveness = config.worker.liveness;
  return std::unique_ptr<shell::Service>(
      std::make_unique<PrefillService>(process, std::move(parts), std::move(decode_balancers), std::move(options)));
}

}  // namespace
}  // namespace millrace::prefill_worker

int main(int argc, char** argv) {
  using namespace millrace;
  const shell::Program program{.name = "millrace-prefill-worker",
                               .summary =
                                   "Computes the KV of prompts, samples their first token and hands them over to "
                                   "decode workers.",
                               .role = cluster::Role::kPrefill};
  prefill_worker::Config config;
  return shell::Main(
      program, [&](config::Schema& schema) { config.Describe(schema); },
      [&](shell::Process& process) { return prefill_worker::Build(config, process); }, argc, argv);
}
