#include "common/runtime/worker_puts.h"

#include <utility>

#include "common/base/crc32c.h"

namespace millrace::runtime {

BlockWriter::BlockWriter(BlockWriterWiring wiring, KvPages pages, uint32_t max_pending, Duration timeout)
    : wiring_(std::move(wiring)),
      pages_(pages),
      max_pending_(max_pending),
      timeout_(timeout),
      pending_gauge_(wiring_.metrics.AddGauge("millrace_" + wiring_.role + "_pending_puts_blocks",
                                              "Blocks held until the store has written them")),
      written_(wiring_.metrics.AddCounter("millrace_" + wiring_.role + "_puts_total", "Blocks offered to the store",
                                          {{"result", "written"}})),
      failed_(wiring_.metrics.AddCounter("millrace_" + wiring_.role + "_puts_total", "Blocks offered to the store",
                                         {{"result", "failed"}})),
      dropped_(wiring_.metrics.AddCounter("millrace_" + wiring_.role + "_puts_total", "Blocks offered to the store",
                                          {{"result", "dropped"}})) {}

void BlockWriter::Put(const kv::BlockKey& chain, const kv::BlockKey& key, kv::BlockIndex block) {
  if (wiring_.store == nullptr) return;
  if (pending_ >= max_pending_) {
    dropped_.Add();
    return;
  }
  wiring_.pool.Retain(block);
  pending_gauge_.Set(++pending_);
  wiring_.checksum.Post([this, chain, key, block] {
    const std::span<const std::byte> bytes = pages_.block(block);
    const uint32_t crc32c = Crc32c(bytes.data(), bytes.size());
    wiring_.control.Post([this, chain, key, block, crc32c] { Send(chain, key, block, crc32c); });
  });
}

void BlockWriter::Send(const kv::BlockKey& chain, const kv::BlockKey& key, kv::BlockIndex block, uint32_t crc32c) {
  StoreClient::PutRequest request;
  request.chain = chain;
  request.key = key;
  request.block = block;
  request.crc32c = crc32c;
  request.deadline = wiring_.control.Now() + timeout_;
  wiring_.store->Put(std::move(request), [this, block](const Status& status) { Done(block, status); });
}

void BlockWriter::Done(kv::BlockIndex block, const Status& status) {
  (status.ok() ? written_ : failed_).Add();
  wiring_.pool.Release(block);
  pending_gauge_.Set(--pending_);
}

}  // namespace millrace::runtime
