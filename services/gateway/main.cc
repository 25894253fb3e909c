#include <memory>
#include <utility>

#include "common/api/error_body.h"
#include "common/api/frontend.h"
#include "common/base/event_loop.h"
#include "common/http/router.h"
#include "common/http/server.h"
#include "common/model/cache_dir.h"
#include "common/model/gguf.h"
#include "common/model/model_digest.h"
#include "common/model/recipe_from_gguf.h"
#include "common/rpc/addresses.h"
#include "common/rpc/dialer.h"
#include "common/runtime/gateway_runtime.h"
#include "services/gateway/config.h"
#include "services/shell/process.h"

namespace millrace::gateway_service {
namespace {

class GatewayService final : public shell::Service {
 public:
  GatewayService(const Config& config, shell::Process& process) : config_(config), process_(process) {}

  // Reads the model's text side and the key file.
  Status Load() {
    MR_RETURN_IF_ERROR(config_.Validate(process_.common().host));
    process_.SetPhase("reading the model file");
    MR_ASSIGN_OR_RETURN(auto file, model::GgufFile::Open(config_.model));
    MR_ASSIGN_OR_RETURN(auto recipe, model::RecipeFromGguf(*file));
    const std::string cache_dir = config_.cache_dir.empty() ? model::DefaultCacheDir() : config_.cache_dir;
    MR_ASSIGN_OR_RETURN(std::string digest, model::ModelDigest(config_.model, cache_dir));
    MR_RETURN_IF_ERROR(file->CheckUnchanged());
    MR_ASSIGN_OR_RETURN(api::FrontendOptions frontend_options, config_.FrontendOptions());
    MR_ASSIGN_OR_RETURN(prefill_balancers_, rpc::DnsAddresses::Create(config_.prefill_balancers));
    MR_ASSIGN_OR_RETURN(decode_balancers_, rpc::DnsAddresses::Create(config_.decode_balancers));
    Executor& control = process_.control();
    pick_ = rpc::MakeDialer<peer::PickProtocol>(control);
    prefill_ = rpc::MakeDialer<peer::PrefillProtocol>(control);
    decode_ = rpc::MakeDialer<peer::DecodeProtocol>(control);
    watch_ = rpc::MakeDialer<peer::WatchProtocol>(control);
    runtime::GatewayLinks links{&work_,
                                &large_work_,
                                pick_.get(),
                                prefill_.get(),
                                decode_.get(),
                                watch_.get(),
                                prefill_balancers_.get(),
                                decode_balancers_.get()};
    runtime_ = std::make_unique<runtime::GatewayRuntime>(config_.GatewayOptions(std::move(recipe), std::move(digest)),
                                                         links, control, process_.metrics());
    frontend_ = std::make_unique<api::Frontend>(std::move(frontend_options), *runtime_, control, work_, large_work_,
                                                process_.metrics());
    frontend_->Register(router_);
    return OkStatus();
  }

  Status Start(const std::string&) override {
    auto handler = [this](http::Request request, std::unique_ptr<http::Responder> responder) {
      router_.Handle(std::move(request), std::move(responder));
    };
    auto server = http::Server::Listen(config_.ServerOptions(process_.common().host), process_.control(), handler);
    if (!server.ok())
      return server.status().Annotate(config_.api_host.empty() ? "HTTP API (--host, --port)"
                                                               : "HTTP API (--api-host, --port)");
    server_ = *std::move(server);
    runtime_->Start();
    Log(LogLevel::kInfo, "api_listening", {{"address", server_->address()}, {"model", config_.ModelName()}});
    return OkStatus();
  }

  bool Ready() override { return runtime_->Ready(); }

  std::vector<LogField> StatusFields() override {
    return {{"active_requests", runtime_->active()}, {"connections", server_->connections()}};
  }

  std::vector<LogField> Ports() override { return {{"http_port", server_->port()}}; }

  void Drain(std::function<void()> done) override {
    server_->StopAccepting();
    frontend_->Drain(std::move(done));
  }

  void CutShort() override { frontend_->CutShort(); }

 private:
  const Config& config_;
  shell::Process& process_;
  // Destroyed from the last to the first: the server stops before what it calls.
  EventLoop work_{"prompts"};
  EventLoop large_work_{"large-prompts"};
  std::unique_ptr<rpc::DnsAddresses> prefill_balancers_;
  std::unique_ptr<rpc::DnsAddresses> decode_balancers_;
  std::unique_ptr<peer::Dialer<peer::PickProtocol>> pick_;
  std::unique_ptr<peer::Dialer<peer::PrefillProtocol>> prefill_;
  std::unique_ptr<peer::Dialer<peer::DecodeProtocol>> decode_;
  std::unique_ptr<peer::Dialer<peer::WatchProtocol>> watch_;
  std::unique_ptr<runtime::GatewayRuntime> runtime_;
  std::unique_ptr<api::Frontend> frontend_;
  http::Router router_{api::RenderHttpError};
  std::unique_ptr<http::Server> server_;
};

StatusOr<std::unique_ptr<shell::Service>> Build(const Config& config, shell::Process& process) {
  auto service = std::make_unique<GatewayService>(config, process);
  MR_RETURN_IF_ERROR(service->Load());
  return std::unique_ptr<shell::Service>(std::move(service));
}

}  // namespace
}  // namespace millrace::gateway_service

int main(int argc, char** argv) {
  using namespace millrace;
  const shell::Program program{
      .name = "millrace-gateway",
      .summary =
          "Serves the OpenAI HTTP API: turns requests into prompts, finds workers for them, and streams their "
          "text. Follows a request to other workers when one dies.",
      .role = cluster::Role::kGateway,
      .grpc_port_flag = "grpc-port"};
  gateway_service::Config config;
  return shell::Main(
      program, [&](config::Schema& schema) { config.Describe(schema); },
      [&](shell::Process& process) { return gateway_service::Build(config, process); }, argc, argv);
}
