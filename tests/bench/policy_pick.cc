// A balancer's hot path: the view of a pool and a policy's pick from it, by number of instances.

#include <benchmark/benchmark.h>

#include <cstdlib>

#include "common/cluster/pool.h"
#include "common/policy/policy.h"

namespace millrace {
namespace {

cluster::Pool MakePool(int instances) {
  cluster::Pool pool(cluster::Role::kDecode, {});
  Rng rng(1);
  for (int i = 0; i < instances; ++i) {
    const cluster::Incarnation incarnation = 1 + static_cast<uint64_t>(i);
    cluster::InstanceInfo info{"decode-" + std::to_string(i),
                               incarnation,
                               cluster::Role::kDecode,
                               "10.0.0.1:9000",
                               {"model", std::string(64, 'a'), 8192},
                               64,
                               4096};
    cluster::Load load;
    load.sequence = 1;
    load.ready = true;
    load.running = static_cast<uint32_t>(rng.Below(60));
    load.kv_tokens = rng.Below(100000);
    load.free_blocks = 1000;
    if (!pool.Hello(info, TimePoint{}).ok() || !pool.Report(incarnation, load, TimePoint{})) std::abort();
  }
  return pool;
}

void BM_Pick(benchmark::State& state, const policy::PolicyDescriptor* descriptor) {
  const cluster::Pool pool = MakePool(static_cast<int>(state.range(0)));
  const auto policy = descriptor->create({});
  Rng rng(2);
  for (auto _ : state) {
    const cluster::ClusterView view = pool.Candidates({"model", ""}, {});
    benchmark::DoNotOptimize(policy->Pick(view, {500, 100}, TimePoint{}, rng));
  }
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const policy::PolicyDescriptor* descriptor : policy::All()) {
    benchmark::RegisterBenchmark(("pick/" + std::string(descriptor->name)).c_str(), BM_Pick, descriptor)
        ->Arg(2)
        ->Arg(32)
        ->Arg(512);
  }
  return true;
}();

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
