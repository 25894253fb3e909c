#pragma once
// UCX memory domains whose memory other processes of the machine can map. Thread-safe.

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/transfer/ucx/wire.h"

namespace millrace::transfer::ucx {

// Shared memory of this process. A page before its bytes holds a nonce by which a reader knows that what it mapped is
// this segment and not a later one under the same system id.
class SharedSegment {
 public:
  virtual ~SharedSegment() = default;
  virtual std::span<std::byte> bytes() = 0;
  // Fills in domain, key and the segment_ fields.
  virtual void Describe(RegionDescriptor& region) const = 0;
};

// A peer's segment, mapped for reading while the object lives, also after the peer ended.
class SharedMapping {
 public:
  virtual ~SharedMapping() = default;
  virtual const std::byte* bytes() const = 0;  // of the segment
};

class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  // kResourceExhausted when no domain has room.
  virtual StatusOr<std::unique_ptr<SharedSegment>> Allocate(size_t size) = 0;
  // kUnavailable when the segment can't be mapped here or is not the one described.
  virtual StatusOr<std::unique_ptr<SharedMapping>> Map(const RegionDescriptor& region) = 0;
};

// Of the named domains ("sysv", "posix") those that this machine has, the first with room is used; null when it has
// none.
std::unique_ptr<SharedMemory> OpenSharedMemory(std::span<const std::string> domains);

}  // namespace millrace::transfer::ucx
