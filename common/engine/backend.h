#pragma once
// Backend: runs one model's forward pass over paged KV memory on one device. It knows tensors and blocks, nothing of
// requests, RPC or who owns a block.
//
// Exactness: the logits of a token are bit-equal whatever else is in the step, however its prefix was cut into steps,
// for any number of threads, and whether its KV was computed here or copied here from a worker of the same numerics
// class.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/kv/block_pool.h"
#include "common/kv/layout.h"

namespace millrace::engine {

// One sequence's part of a step. Spans are read during Step only.
struct SequenceStep {
  std::span<const int32_t> tokens;         // ids to compute, at least 1, each in [0, vocab)
  uint32_t start = 0;                      // absolute position of tokens[0]; the KV of [0, start) is in place
  std::span<const kv::BlockIndex> blocks;  // block i holds positions [64 i, 64 i + 64); covers start + tokens.size()
  bool need_logits = false;                // of the last token
};

// Called on the thread that runs Step, in layer order, after the KV rows of every sequence of the step are in place for
// `layer`. Must return quickly: the device waits.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  virtual void OnLayerDone(uint32_t layer) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const kv::Layout& layout() const = 0;
  virtual uint32_t vocab_size() const = 0;
  virtual uint32_t context_tokens() const = 0;

  // block_count() blocks of layout().block_bytes() each, block i at i * block_bytes(). Lives as long as the backend;
  // peers may read it and transfers may write blocks that no running Step names. 64-byte aligned.
  virtual std::span<std::byte> kv_memory() = 0;
  virtual uint32_t block_count() const = 0;

  // Runs the sequences (no block written by two of them) and writes their KV rows. logits()[k] is the row of the k-th
  // sequence that needs logits, valid until the next Step. One call at a time; blocks the calling thread. `observer`
  // may be null. kInvalidArgument names the bad sequence and nothing ran.
  virtual Status Step(std::span<const SequenceStep> sequences, LayerObserver* observer) = 0;
  virtual const std::vector<std::span<const float>>& logits() const = 0;

  // Grows with every layer of every step; read by heartbeats from any thread.
  virtual uint64_t progress() const = 0;
  // "cpu avx512 2 threads", for logs and benchmark output.
  virtual std::string description() const = 0;
};

}  // namespace millrace::engine
