#pragma once
// A tier in this process's memory, gone with it: for tests and for stores without a disk. The same catalog decides.

#include <memory>

#include "common/base/status.h"
#include "common/store/tier.h"

namespace millrace::store {

StatusOr<std::unique_ptr<Tier>> OpenMemoryTier(TierOptions options);

}  // namespace millrace::store
