#pragma once
// Tier: keeps KV blocks by key, at most so many bytes of them, for as long as their retention says. A block is
// immutable: a key names its content, so the same key put again is the same block.
//
// Thread-safe. Put, Get and Close may block on a disk; ContainsPrefix never does. The bytes that Get returns are the
// bytes that Put was given, or Get fails: what was damaged in between is a miss, never a wrong block.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/kv/block_key.h"
#include "common/store/retention.h"

namespace millrace::store {

struct TierPut {
  kv::BlockKey key;
  std::span<const std::byte> bytes;  // read during the call only
  uint32_t crc32c = 0;               // of bytes; checked by every Get, trusted here
  RetentionClass retention = RetentionClass::kChat;
};

struct TierStats {
  uint64_t blocks = 0;
  uint64_t live_bytes = 0;  // of blocks that can be read
  uint64_t used_bytes = 0;  // taken from the medium, dead records included; <= capacity_bytes
  uint64_t capacity_bytes = 0;
  uint64_t free_bytes = 0;  // of the medium
  // Since it was opened:
  uint64_t evicted = 0;         // blocks given up before they expired, beyond their guarantee
  uint64_t expired = 0;         // blocks removed because they expired
  uint64_t corrupt = 0;         // blocks dropped because their bytes were not right
  uint64_t recovered = 0;       // blocks found in segments that the index had not
  bool guarantee_full = false;  // the last put found only blocks within their guarantee
  bool read_only = false;       // the index can't be written, for want of room: puts are refused until it can
};

struct TierOptions {
  std::string path;             // folder, made when missing; unused in memory
  uint64_t capacity_bytes = 0;  // hard cap of used_bytes
  uint64_t min_free_bytes = 0;  // puts that would leave less on the medium are refused
  bool fsync = false;           // each Put survives a power cut; without, it survives the process
  Retention retention;
  std::function<int64_t()> unix_seconds;  // thread-safe; required
};

class Tier {
 public:
  virtual ~Tier() = default;

  // One status per item, in order. OK: the block is readable now, and after the process was killed. An item whose key
  // is there already, or before it in the batch, costs nothing. kResourceExhausted(kNoSpace): the cap, the floor or the
  // medium itself leaves no room; everything else goes on. kInvalidArgument: empty, or larger than a quarter of the
  // capacity. kFailedPrecondition: closed.
  virtual std::vector<Status> Put(std::span<const TierPut> batch) = 0;

  // Reads the block into `into`, which must be exactly as long (else kInvalidArgument), and returns its CRC32C, which
  // was checked. kNotFound; kDataLoss(kKvCorrupt): it was damaged and is dropped. `into` is undefined after an error.
  virtual StatusOr<uint32_t> Get(const kv::BlockKey& key, std::span<std::byte> into) = 0;

  // How many of `keys`, from the first on, are there.
  virtual uint32_t ContainsPrefix(std::span<const kv::BlockKey> keys) const = 0;

  virtual TierStats Stats() const = 0;

  // Finishes what runs and makes everything durable. Idempotent; the destructor does it too.
  virtual Status Close() = 0;
};

}  // namespace millrace::store
