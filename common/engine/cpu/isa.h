#pragma once
// Which instruction set the CPU backend runs on this machine.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace millrace::engine::cpu {

struct Kernels;

enum class Isa : uint8_t { kAuto, kAvx2, kAvx512 };

// "auto", "avx2", "avx512".
std::vector<std::string> IsaNames();
// By name; kInvalidArgument lists them.
StatusOr<Isa> ParseIsa(std::string_view text);
// Whether this machine has it; kAuto: whether it has any.
bool MachineHas(Isa isa);
// kFailedPrecondition when this machine lacks it. kAuto takes the widest there is.
StatusOr<const Kernels*> SelectKernels(Isa isa);

}  // namespace millrace::engine::cpu
