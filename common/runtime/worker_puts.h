#pragma once
// Writes full blocks to the store in the background. A block stays held in the pool until the store has answered; how
// many may wait is bounded, and a block that finds no place is not written: the store is an accelerator.
//
// Everything on `control`, except checksums, which run on `checksum`. Destroy after both executors stopped.

#include <cstdint>
#include <string>

#include "common/base/executor.h"
#include "common/base/metrics.h"
#include "common/kv/block_key.h"
#include "common/kv/block_pool.h"
#include "common/runtime/store_client.h"
#include "common/runtime/worker_pages.h"

namespace millrace::runtime {

// All outlive the writer.
struct BlockWriterWiring {
  Executor& control;
  Executor& checksum;
  StoreClient* store;  // null: no store, every Put is dropped
  kv::BlockPool& pool;
  MetricRegistry& metrics;
  std::string role;  // "prefill", "decode": in the names of the metrics
};

class BlockWriter {
 public:
  BlockWriter(BlockWriterWiring wiring, KvPages pages, uint32_t max_pending, Duration timeout);

  // `block` is held by the caller and does not change any more. `chain` is the key of block 0 of its sequence.
  void Put(const kv::BlockKey& chain, const kv::BlockKey& key, kv::BlockIndex block);

  uint32_t pending() const { return pending_; }

 private:
  void Send(const kv::BlockKey& chain, const kv::BlockKey& key, kv::BlockIndex block, uint32_t crc32c);
  void Done(kv::BlockIndex block, const Status& status);

  const BlockWriterWiring wiring_;
  const KvPages pages_;
  const uint32_t max_pending_;
  const Duration timeout_;
  uint32_t pending_ = 0;
  Gauge& pending_gauge_;
  Counter& written_;
  Counter& failed_;
  Counter& dropped_;
};

}  // namespace millrace::runtime
