// Streams over loopback, both ends in this process: round trips, messages per second, what idle streams cost. And what
// the codec costs alone.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <deque>
#include <future>
#include <memory>

#include "common/base/event_loop.h"
#include "common/rpc/codec.h"
#include "common/rpc/dialer.h"
#include "common/rpc/server.h"

namespace millrace::rpc {
namespace {

using peer::HandoffProtocol;
using peer::Heartbeat;

// Runs on every stream it accepts: echoes Heartbeats when `echo`, else keeps count.
class BenchService final : public peer::Service<HandoffProtocol> {
 public:
  peer::StreamHandler<HandoffProtocol::Up> Accept(
      std::unique_ptr<peer::ServerStream<HandoffProtocol>> stream) override {
    auto* const raw = stream.get();
    streams.push_back(std::move(stream));
    if (streams.size() == expected) accepted.set_value();
    return {.on_message =
                [raw](HandoffProtocol::Up message) {
                  if (auto* heartbeat = std::get_if<Heartbeat>(&message); heartbeat->busy) raw->Send(*heartbeat);
                },
            .on_closed = {}};
  }
  size_t expected = 1;
  std::promise<void> accepted;
  std::deque<std::unique_ptr<peer::ServerStream<HandoffProtocol>>> streams;
};

struct Link {
  explicit Link(size_t stream_count) {
    service.expected = stream_count;
    server.AddService<HandoffProtocol>(service, server_loop);
    const std::string address = "127.0.0.1:" + std::to_string(server.Start("127.0.0.1", 0).value());
    RunOnClient([&] {
      for (size_t i = 0; i < stream_count; ++i) {
        streams.push_back(dialer->Open(address, {.on_message = [this](auto message) { on_message(message); }}));
      }
    });
    service.accepted.get_future().wait();
  }
  ~Link() {
    RunOnClient([&] { streams.clear(); });
    server.Shutdown(Duration(0));
  }
  void RunOnClient(const std::function<void()>& task) {
    std::promise<void> done;
    client_loop.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  EventLoop server_loop{"server"};
  EventLoop client_loop{"client"};
  BenchService service;
  Server server;
  std::unique_ptr<peer::Dialer<HandoffProtocol>> dialer = MakeDialer<HandoffProtocol>(client_loop);
  std::function<void(const HandoffProtocol::Down&)> on_message = [](const auto&) {};
  std::deque<std::unique_ptr<peer::ClientStream<HandoffProtocol>>> streams;  // belongs to client_loop
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One message there and back, from loop to loop.
void BM_RoundTrip(benchmark::State& state) {
  Link link(1);
  std::promise<void>* waiting = nullptr;
  link.RunOnClient([&] { link.on_message = [&](const auto&) { waiting->set_value(); }; });
  for (auto _ : state) {
    std::promise<void> done;
    link.client_loop.Post([&] {
      waiting = &done;
      link.streams[0]->Send(Heartbeat{.busy = true});
    });
    done.get_future().wait();
  }
}
BENCHMARK(BM_RoundTrip)->UseRealTime();

// Messages one way on `range(0)` streams at once, with at most 64 in flight each.
void BM_MessagesDown(benchmark::State& state) {
  const auto stream_count = static_cast<size_t>(state.range(0));
  constexpr size_t kBatch = 64;
  Link link(stream_count);
  size_t missing = 0;
  std::promise<void>* waiting = nullptr;
  link.RunOnClient([&] {
    link.on_message = [&](const auto&) {
      if (--missing == 0) waiting->set_value();
    };
  });
  for (auto _ : state) {
    std::promise<void> done;
    link.RunOnClient([&] {
      missing = kBatch * stream_count;
      waiting = &done;
    });
    link.server_loop.Post([&] {
      for (size_t i = 0; i < kBatch; ++i) {
        for (auto& stream : link.service.streams) stream->Send(Heartbeat{.progress = i});
      }
    });
    done.get_future().wait();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kBatch * stream_count));
}
BENCHMARK(BM_MessagesDown)->Arg(1)->Arg(16)->UseRealTime();

// Both ends of `range(0)` streams whose server sends a Heartbeat 4 times a second, for 5 s: percent of one core.
void BM_IdleStreams(benchmark::State& state) {
  Link link(static_cast<size_t>(state.range(0)));
  std::function<void()> beat = [&] {
    for (auto& stream : link.service.streams) stream->Send(Heartbeat{});
    link.server_loop.PostAfter(Milliseconds(250), beat);
  };
  if (state.range(0) > 0) link.server_loop.Post(beat);
  double cpu = 0;
  double wall = 0;
  for (auto _ : state) {
    const double cpu_before = CpuSeconds();
    const TimePoint before = link.client_loop.Now();
    std::promise<void> done;
    link.RunOnClient([&] { link.client_loop.PostAfter(Seconds(5), [&] { done.set_value(); }); });
    done.get_future().wait();
    cpu += CpuSeconds() - cpu_before;
    wall += ToSeconds(link.client_loop.Now() - before);
  }
  state.counters["core_percent"] = 100 * cpu / wall;
  link.server_loop.Stop();
}
BENCHMARK(BM_IdleStreams)->Arg(1)->Arg(32)->Iterations(1)->UseRealTime()->Unit(benchmark::kMillisecond);

void BM_EncodePrompt(benchmark::State& state) {
  peer::PrefillRequest request;
  request.generation.tokens.assign(static_cast<size_t>(state.range(0)), 40'000);
  request.generation.prompt_tokens = static_cast<uint32_t>(state.range(0));
  request.generation.max_new_tokens = 1;
  const peer::PrefillProtocol::Up message = request;
  for (auto _ : state) benchmark::DoNotOptimize(Encode(message));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_EncodePrompt)->Arg(2000);

void BM_DecodePrompt(benchmark::State& state) {
  peer::PrefillRequest request;
  request.generation.tokens.assign(static_cast<size_t>(state.range(0)), 40'000);
  request.generation.prompt_tokens = static_cast<uint32_t>(state.range(0));
  request.generation.max_new_tokens = 1;
  const std::string bytes = Encode(peer::PrefillProtocol::Up(request));
  for (auto _ : state) benchmark::DoNotOptimize(Decode<peer::PrefillProtocol::Up>(bytes));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_DecodePrompt)->Arg(2000);

}  // namespace
}  // namespace millrace::rpc

BENCHMARK_MAIN();
