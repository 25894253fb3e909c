#pragma once
// Memory of this process alone, for transports that have no better.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/transfer/transport.h"

namespace millrace::transfer {

// Bytes that this process can still use before the machine or its control group runs out.
uint64_t AvailableMemory();

// kResourceExhausted, naming what there is, when `size` is more than AvailableMemory(): it could be mapped and would
// end processes once it is used.
Status CheckRoom(size_t size);

StatusOr<std::unique_ptr<Memory>> MakeAnonymousMemory(size_t size);

}  // namespace millrace::transfer
