#pragma once
// A tier on a local disk: a RocksDB index and append-only segment files.
//
//   PATH/LOCK                one process at a time
//   PATH/index/              RocksDB; damaged or missing, it is built again from the segments
//   PATH/segments/ID.seg     records (common/store/record.h); ids grow and are never used twice
//
// A put is one write to the active segment and one index commit; a batch shares both. After kill -9 every block whose
// Put returned OK is there. On open, records beyond what the index knows are read and added, and what follows the last
// intact one is cut off. While the index can't be written the tier is read-only, at open too; a put, at most one a
// second, tries to open it again.

#include <memory>

#include "common/base/status.h"
#include "common/store/tier.h"

namespace millrace::store {

// kFailedPrecondition: another process has the folder. kInvalidArgument names the option.
StatusOr<std::unique_ptr<Tier>> OpenRocksdbTier(TierOptions options);

}  // namespace millrace::store
