#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/event_loop.h"
#include "common/base/log.h"
#include "common/runtime/store_runtime.h"
#include "common/store/rocksdb/rocksdb_tier.h"
#include "common/transfer/transport.h"
#include "services/kvcache_store/config.h"
#include "services/shell/process.h"

namespace millrace::kvcache_store {
namespace {

class StoreService final : public shell::Service {
 public:
  static StatusOr<std::unique_ptr<shell::Service>> Build(const Config& config, shell::Process& process) {
    MR_RETURN_IF_ERROR(config.Validate());
    process.SetPhase("opening the store");
    std::unique_ptr<StoreService> service(new StoreService());
    // Settings that cannot work are refused before the folder is made.
    MR_ASSIGN_OR_RETURN(service->transport_, config.transport.Make(process.common().OnLoopback()));
    MR_ASSIGN_OR_RETURN(service->tier_, store::OpenRocksdbTier(config.Tier()));
    service->writer_ = std::make_unique<EventLoop>("store-write");
    service->teardown_ = std::make_unique<EventLoop>("store-teardown");
    std::vector<Executor*> readers;
    for (uint32_t i = 0; i < config.readers; ++i) {
      service->readers_.push_back(std::make_unique<EventLoop>("store-read-" + std::to_string(i)));
      readers.push_back(service->readers_.back().get());
    }
    runtime::StoreRuntimeOptions options = config.Runtime();
    options.incarnation = process.incarnation();
    MR_ASSIGN_OR_RETURN(service->runtime_, runtime::StoreRuntime::Make({.control = process.control(),
                                                                        .readers = readers,
                                                                        .writer = *service->writer_,
                                                                        .teardown = *service->teardown_,
                                                                        .tier = *service->tier_,
                                                                        .transport = *service->transport_,
                                                                        .metrics = process.metrics()},
                                                                       options));
    process.rpc_server().AddService<peer::StoreProtocol>(*service->runtime_, process.control());
    return std::unique_ptr<shell::Service>(std::move(service));
  }

  ~StoreService() override {
    for (const auto& reader : readers_) reader->Stop();
    if (writer_ != nullptr) writer_->Stop();
    if (teardown_ != nullptr) teardown_->Stop();
    runtime_ = nullptr;
    if (tier_ == nullptr) return;
    if (const Status closed = tier_->Close(); !closed.ok()) {
      Log(LogLevel::kError, "store_close_failed", {{"error", closed.ToString()}});
    }
  }

  Status Start(const std::string&) override {
    runtime_->Start();
    return OkStatus();
  }
  bool Ready() override { return true; }
  std::vector<LogField> StatusFields() override {
    const store::TierStats& stats = runtime_->tier_stats();
    return {{"blocks", stats.blocks},
            {"disk_bytes", stats.used_bytes},
            {"capacity_bytes", stats.capacity_bytes},
            {"free_bytes", stats.free_bytes},
            {"read_only", stats.read_only},
            {"workers", runtime_->sessions()},
            {"leases", runtime_->leases()},
            {"puts_in_flight", runtime_->puts_in_flight()}};
  }
  void Drain(std::function<void()> done) override { runtime_->Drain(std::move(done)); }

 private:
  StoreService() = default;

  std::unique_ptr<store::Tier> tier_;
  std::unique_ptr<transfer::Transport> transport_;
  std::vector<std::unique_ptr<EventLoop>> readers_;
  std::unique_ptr<EventLoop> writer_;
  std::unique_ptr<EventLoop> teardown_;
  std::unique_ptr<runtime::StoreRuntime> runtime_;
};

}  // namespace
}  // namespace millrace::kvcache_store

int main(int argc, char** argv) {
  const millrace::shell::Program program{
      .name = "millrace-kvcache-store",
      .summary = "Keeps KV blocks on a local disk for all workers. Optional: without it everything works, slower.",
      .role = millrace::cluster::Role::kStore};
  millrace::kvcache_store::Config config;
  return millrace::shell::Main(
      program, [&](millrace::config::Schema& schema) { config.Describe(schema); },
      [&](millrace::shell::Process& process) { return millrace::kvcache_store::StoreService::Build(config, process); },
      argc, argv);
}
