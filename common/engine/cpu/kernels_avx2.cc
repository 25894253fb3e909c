// Compiled with Avx2 code generation: nothing here may be inline code shared with other sources (standard library
// included), or the linker could pick this copy for machines that can't run it.
#include "common/engine/cpu/kernels.h"
#include "common/engine/cpu/vector_avx2.h"

namespace millrace::engine::cpu {
namespace avx2 {

// clang-format off: each builds on the one before
#include "common/engine/cpu/row_kernels.inc"
#include "common/engine/cpu/attention_kernels.inc"
#include "common/engine/cpu/matmul_kernels.inc"
// clang-format on

template <Packing kKind>
constexpr auto kInteger = &MatMul<IntegerTile, kKind, kDotPanels, kDotTokens>;
template <Packing kKind>
constexpr auto kFloat = &MatMul<FloatTile, kKind, kFloatPanels, kFloatTokens>;

constexpr Kernels kKernels = {
    "avx2",
    {kInteger<Packing::kU4Zero8>, kInteger<Packing::kU4Min>, kInteger<Packing::kU8Zero128>, kFloat<Packing::kF16>,
     kFloat<Packing::kBF16>, kFloat<Packing::kF32>},
    &Quantize,
    &RmsNorm,
    &SwiGlu,
    &Rope,
    &ToHalf,
    &Attention,
};

}  // namespace avx2

const Kernels& Avx2Kernels() { return avx2::kKernels; }

}  // namespace millrace::engine::cpu
