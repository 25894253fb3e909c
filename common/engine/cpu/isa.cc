#include "common/engine/cpu/isa.h"

#include "common/engine/cpu/kernels.h"

namespace millrace::engine::cpu {

std::vector<std::string> IsaNames() { return {"auto", "avx2", "avx512"}; }

StatusOr<Isa> ParseIsa(std::string_view text) {
  if (text == "auto") return Isa::kAuto;
  if (text == "avx2") return Isa::kAvx2;
  if (text == "avx512") return Isa::kAvx512;
  return InvalidArgument("unknown instruction set '" + std::string(text) + "'; we have: auto, avx2, avx512");
}

bool MachineHas(Isa isa) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa != Isa::kAvx512) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

StatusOr<const Kernels*> SelectKernels(Isa isa) {
  if (!MachineHas(Isa::kAvx2)) {
    return FailedPrecondition("this processor has no AVX2, FMA and F16C (Intel Haswell, AMD Zen or later have them)");
  }
  if (isa == Isa::kAvx2) return &Avx2Kernels();
  if (MachineHas(Isa::kAvx512)) return &Avx512Kernels();
  if (isa == Isa::kAuto) return &Avx2Kernels();
  return FailedPrecondition("this processor has no AVX-512 with VNNI; choose auto or avx2");
}

}  // namespace millrace::engine::cpu
