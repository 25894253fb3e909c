// A gateway for tests of clients: the real HTTP server, API and runtime over the scripted cluster of gateway_fakes.h,
// in one process. Prints {"url", "key", "other_key"} on a line of its own and runs until its standard input ends.
//
//   stub_gateway [--fault none|decode-dies|no-decode|slow]

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <future>

#include "common/api/error_body.h"
#include "common/api/frontend.h"
#include "common/base/event_loop.h"
#include "common/base/log.h"
#include "common/runtime/gateway_runtime.h"
#include "tests/component/gateway_fakes.h"

namespace millrace {
namespace {

constexpr const char* kKey = "key-one";
constexpr const char* kOtherKey = "key-two";

struct StubGateway {
  explicit StubGateway(Executor& control)
      : world(control, network),
        d1(world, "d1", 201),
        d2(world, "d2", 202),
        p1(world, "p1", 101, {&d1, &d2}),
        pb(world, "pb"),
        db(world, "db"),
        pick(network.MakeDialer<peer::PickProtocol>(control, "gateway")),
        prefill(network.MakeDialer<peer::PrefillProtocol>(control, "gateway")),
        decode(network.MakeDialer<peer::DecodeProtocol>(control, "gateway")),
        watch(network.MakeDialer<peer::WatchProtocol>(control, "gateway")) {
    pb.prefills = {&p1};
    for (auto* worker : {&d1, &d2}) worker->pace = Duration(0);
    p1.pace = Duration(0);
    runtime::GatewayOptions options;
    options.models = {{fakes::kModel, std::make_shared<fakes::ByteRecipe>(), fakes::kModelDigest}};
    runtime::GatewayLinks links{&work,        &large_work, pick.get(),         prefill.get(),
                                decode.get(), watch.get(), &prefill_balancers, &decode_balancers};
    gateway = std::make_unique<runtime::GatewayRuntime>(std::move(options), links, control, *metrics);
    api::FrontendOptions frontend_options;
    frontend_options.keys = *api::ApiKeys::Parse(std::string(kKey) + "\n" + kOtherKey);
    frontend_options.max_requests = 64;
    frontend_options.event_silence = Milliseconds(200);
    frontend =
        std::make_unique<api::Frontend>(std::move(frontend_options), *gateway, control, work, large_work, *metrics);
    frontend->Register(router);
    gateway->Start();
  }

  void Fault(const std::string& fault) {
    if (fault == "decode-dies") {
      d1.fault = fakes::Fault::kClose;
      d1.fault_after = 3;
    } else if (fault == "no-decode") {
      d1.fault = d2.fault = fakes::Fault::kClose;
      d1.fault_after = d2.fault_after = 3;
    } else if (fault == "slow") {
      p1.pace = Milliseconds(700);
    }
  }

  support::LocalNetwork network;
  EventLoop work{"prompts"};
  EventLoop large_work{"large-prompts"};
  fakes::World world;
  fakes::FakeDecode d1;
  fakes::FakeDecode d2;
  fakes::FakePrefill p1;
  fakes::FakeBalancer pb;
  fakes::FakeBalancer db;
  std::unique_ptr<peer::Dialer<peer::PickProtocol>> pick;
  std::unique_ptr<peer::Dialer<peer::PrefillProtocol>> prefill;
  std::unique_ptr<peer::Dialer<peer::DecodeProtocol>> decode;
  std::unique_ptr<peer::Dialer<peer::WatchProtocol>> watch;
  peer::StaticAddresses prefill_balancers{{"pb"}};
  peer::StaticAddresses decode_balancers{{"db"}};
  std::unique_ptr<MetricRegistry> metrics = MakeMemoryMetrics();
  std::unique_ptr<runtime::GatewayRuntime> gateway;
  std::unique_ptr<api::Frontend> frontend;
  http::Router router{api::RenderHttpError};
};

void RunOn(EventLoop& loop, const std::function<void()>& task) {
  std::promise<void> done;
  loop.Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

int Main(int argc, char** argv) {
  SetLogSink([](LogLevel, std::string_view, const LogField*, size_t) {}, LogLevel::kError);
  std::string fault = argc == 3 && std::strcmp(argv[1], "--fault") == 0 ? argv[2] : "none";
  EventLoop control("control");
  std::unique_ptr<StubGateway> stub;
  RunOn(control, [&] {
    stub = std::make_unique<StubGateway>(control);
    stub->Fault(fault);
  });
  // The balancers' first word takes a few turns of the loop.
  bool ready = false;
  for (int turn = 0; turn < 10'000 && !ready; ++turn) RunOn(control, [&] { ready = stub->gateway->Ready(); });
  http::ServerOptions options;
  options.render_error = api::RenderHttpError;
  options.header_timeout = Seconds(2);
  auto server = http::Server::Listen(options, control, [&](http::Request request, std::unique_ptr<http::Responder> r) {
    stub->router.Handle(std::move(request), std::move(r));
  });
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("{\"url\":\"http://%s\",\"key\":\"%s\",\"other_key\":\"%s\"}\n", (*server)->address().c_str(), kKey,
              kOtherKey);
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  (*server)->Stop();
  RunOn(control, [&] { stub.reset(); });
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
