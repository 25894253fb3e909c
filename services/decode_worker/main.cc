#include <memory>
#include <utility>

#include "services/decode_worker/config.h"
#include "services/shell/process.h"
#include "services/worker/parts.h"

namespace millrace::decode_worker {
namespace {

class DecodeService final : public shell::Service {
 public:
  DecodeService(shell::Process& process, std::unique_ptr<worker::WorkerParts> parts, runtime::DecodeOptions options)
      : process_(process),
        parts_(std::move(parts)),
        max_sequences_(options.limits.most_sequences),
        runtime_(std::make_unique<runtime::DecodeRuntime>(
            runtime::DecodeWiring{parts_->control(), parts_->engine(), parts_->checksum(), parts_->blocking(),
                                  parts_->backend(), parts_->transport(), parts_->store(), process.metrics()},
            std::move(options))) {
    process.rpc_server().AddService<peer::HandoffProtocol>(*runtime_, process.control());
    process.rpc_server().AddService<peer::DecodeProtocol>(*runtime_, process.control());
  }

  ~DecodeService() override {
    parts_->StopThreads();
    runtime_ = nullptr;
  }

  Status Start(const std::string& address) override {
    runtime_->Start();
    parts_->StartReports(process_, cluster::Role::kDecode, address, max_sequences_,
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
  const uint32_t max_sequences_;
  std::unique_ptr<runtime::DecodeRuntime> runtime_;
};

StatusOr<std::unique_ptr<shell::Service>> Build(const Config& config, shell::Process& process) {
  MR_ASSIGN_OR_RETURN(auto parts, worker::WorkerParts::Open(config.worker, process));
  runtime::DecodeOptions options = config.runtime;
  options.incarnation = process.incarnation();
  options.liveness = config.worker.liveness;
  return std::unique_ptr<shell::Service>(
      std::make_unique<DecodeService>(process, std::move(parts), std::move(options)));
}

}  // namespace
}  // namespace millrace::decode_worker

int main(int argc, char** argv) {
  using namespace millrace;
  const shell::Program program{.name = "millrace-decode-worker",
                               .summary =
                                   "Reads the KV of prompts from prefill workers, generates their tokens together and "
                                   "streams them to gateways.",
                               .role = cluster::Role::kDecode};
  decode_worker::Config config;
  return shell::Main(
      program, [&](config::Schema& schema) { config.Describe(schema); },
      [&](shell::Process& process) { return decode_worker::Build(config, process); }, argc, argv);
}
