// Matrix products and attention of each instruction set, one thread. Items are multiply-adds.
#include <benchmark/benchmark.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "common/engine/cpu/isa.h"
#include "common/engine/cpu/kernels.h"

namespace millrace::engine::cpu {
namespace {

size_t PanelBytes(Packing packing, uint32_t cols) {
  switch (packing) {
    case Packing::kU4Zero8:
      return cols / 32 * 288;
    case Packing::kU4Min:
      return cols / 32 * 320;
    case Packing::kU8Zero128:
      return cols / 32 * 544;
    case Packing::kF16:
    case Packing::kBF16:
      return size_t{cols} * 32;
    case Packing::kF32:
      return size_t{cols} * 64;
  }
  return 0;
}

// Arguments: packing, tokens.
void MatMul(benchmark::State& state, const Kernels& kernels) {
  constexpr uint32_t kCols = 576, kPanels = 96;
  const auto packing = static_cast<Packing>(state.range(0));
  const auto tokens = static_cast<uint32_t>(state.range(1));
  const std::vector<std::byte> weights(PanelBytes(packing, kCols) * kPanels + 64);
  std::vector<int8_t> codes(size_t{tokens} * kCols, 3);
  std::vector<float> input(codes.size()), scales(codes.size() / 32), sums(scales.size());
  std::vector<int32_t> negated(scales.size());
  std::vector<float> out(size_t{tokens} * kPanels * kPanelRows);
  MatMulArgs args{.panels = weights.data(), .panel_bytes = PanelBytes(packing, kCols), .panel_count = kPanels};
  args.cols = kCols;
  args.tokens = tokens;
  args.quantized = {codes.data(), scales.data(), sums.data(), negated.data(), kCols};
  args.input = input.data();
  args.input_pitch = kCols;
  args.out = out.data();
  args.out_pitch = kPanels * kPanelRows;
  for (auto _ : state) kernels.matmul[state.range(0)](args);
  state.SetItemsProcessed(state.iterations() * tokens * kCols * kPanels * kPanelRows);
}

// Arguments: position of the first query, queries. Three query heads on one key head of 64 elements.
void Attention(benchmark::State& state, const Kernels& kernels) {
  constexpr uint32_t kHeadDim = 64, kGroup = 3;
  const auto position = static_cast<uint32_t>(state.range(0)), tokens = static_cast<uint32_t>(state.range(1));
  const uint32_t blocks = (position + tokens + 63) / 64;
  std::vector<std::byte> kv(size_t{blocks} * 64 * kHeadDim * 4);
  std::vector<uint32_t> indices(blocks);
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<float> query(size_t{tokens} * kGroup * kHeadDim, 0.5f), out(query.size());
  std::vector<float> scratch(AttentionScratchFloats(kHeadDim));
  AttentionArgs args{.kv = kv.data(), .block_bytes = size_t{64} * kHeadDim * 4, .blocks = indices.data()};
  args.row_bytes = kHeadDim * 4;
  args.value_offset = kHeadDim * 2;
  args.head_dim = kHeadDim;
  args.query_heads = kGroup;
  args.tokens = tokens;
  args.position = position;
  args.query = query.data();
  args.query_pitch = args.out_pitch = kGroup * kHeadDim;
  args.out = out.data();
  args.scratch = scratch.data();
  for (auto _ : state) kernels.attention(args);
  state.SetItemsProcessed(state.iterations() * tokens * kGroup * (position + tokens / 2) * kHeadDim * 2);
}

void RegisterFor(const Kernels& kernels) {
  const std::string isa = kernels.isa;
  for (int packing = 0; packing < kPackings; ++packing) {
    for (int tokens : {1, 8, 128}) {
      benchmark::RegisterBenchmark(("MatMul/" + isa).c_str(), [&kernels](benchmark::State& state) {
        MatMul(state, kernels);
      })->Args({packing, tokens});
    }
  }
  for (int position : {0, 512, 2048}) {
    for (int tokens : {1, 16}) {
      benchmark::RegisterBenchmark(("Attention/" + isa).c_str(), [&kernels](benchmark::State& state) {
        Attention(state, kernels);
      })->Args({position, tokens});
    }
  }
}

}  // namespace
}  // namespace millrace::engine::cpu

int main(int argc, char** argv) {
  using namespace millrace::engine::cpu;
  if (MachineHas(Isa::kAvx2)) RegisterFor(Avx2Kernels());
  if (MachineHas(Isa::kAvx512)) RegisterFor(Avx512Kernels());
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
