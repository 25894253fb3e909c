#pragma once
// One prompt inside a prefill worker, and one step of its engine. Owned by PrefillRuntime, on its control executor.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/engine/backend.h"
#include "common/kv/block_key.h"
#include "common/kv/block_pool.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"
#include "common/runtime/prefill_handoff.h"

namespace millrace::runtime {

enum class PrefillState : uint8_t {
  kNew,        // the stream is open, its request has not come
  kWaiting,    // for blocks
  kFetching,   // blocks are held; the store is asked, or loads
  kComputing,  // until the first token is sampled
  kHandingOver,
  kEnded,  // the stream is closed; held until `pins` is 0
};

struct PrefillSession {
  uint64_t id = 0;
  PrefillState state = PrefillState::kNew;
  TimePoint opened;
  std::unique_ptr<peer::ServerStream<peer::PrefillProtocol>> stream;
  request::Generation generation;  // not changed while a step holds it
  std::vector<cluster::Incarnation> excluded_decode;
  std::vector<kv::BlockKey> keys;      // of the full blocks; empty when the store is not used
  std::vector<kv::BlockIndex> blocks;  // not changed once allocated
  uint32_t done = 0;                   // tokens whose KV is in place
  uint32_t cached = 0;                 // of those, loaded
  uint32_t put_blocks = 0;             // blocks offered to the store, or loaded from it
  uint32_t announced_blocks = 0;       // blocks whose checksums were asked for
  uint32_t pins = 0;                   // work elsewhere that uses `blocks` or `generation`
  uint32_t checksums = 0;              // of those pins, checksum tasks
  bool hands_over = true;              // false: the first token is the last
  bool sampled = false;
  request::TokenId first_token = 0;
  std::vector<peer::LayerBlock> layer_blocks;  // announced before there was a hand-over
  std::unique_ptr<PrefillHandoff> handoff;
  bool handoff_ended = false;

  uint32_t tokens() const { return static_cast<uint32_t>(generation.tokens.size()); }
};

struct PrefillPart {
  uint64_t id = 0;
  const PrefillSession* session = nullptr;  // pinned
  uint32_t tokens = 0;
  bool last = false;
  uint32_t announce_from = 0;  // of the last chunk: first block that it announces
  request::TokenId sampled = 0;
};

struct PrefillStep {
  std::vector<engine::SequenceStep> sequences;
  std::vector<PrefillPart> parts;  // one a sequence
  uint32_t tokens = 0;
  uint32_t layers_done = 0;
  Duration took{0};
  Status status;
};

}  // namespace millrace::runtime
