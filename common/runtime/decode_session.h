#pragma once
// One sequence inside a decode worker, and one step of its engine. Owned by DecodeRuntime, on its control executor.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/engine/backend.h"
#include "common/kv/block_key.h"
#include "common/kv/block_pool.h"
#include "common/peer/liveness.h"
#include "common/peer/protocols.h"
#include "common/peer/stream.h"
#include "common/runtime/decode_links.h"

namespace millrace::runtime {

enum class DecodeState : uint8_t {
  kNew,       // a prefill worker's stream is open, its Reserve has not come
  kReserved,  // blocks are held and fill with the prefill worker's KV
  kRunning,
  kEnded,  // no more tokens; blocks are held until `pins` is 0, the rest until the gateway has read it or is late
};

struct DecodeSession {
  uint64_t id = 0;  // grows with age
  DecodeState state = DecodeState::kNew;
  TimePoint since;  // when the stream opened, the slot was reserved or the batch joined
  TimePoint ended;
  std::string name;
  request::Generation generation;      // not changed once reserved
  std::vector<request::TokenId> ids;   // prompt and all that was generated; not changed while in a step
  std::vector<kv::BlockIndex> blocks;  // not changed while in a step
  uint32_t kv_tokens = 0;              // whose KV is in place: all of `ids` but the last
  uint32_t put_blocks = 0;             // full blocks that are the store's or were offered to it
  std::vector<kv::BlockKey> keys;      // of the first put_blocks blocks; empty when the store is not used
  uint32_t pins = 0;                   // pulls and steps that use `blocks`

  // Hand-over.
  std::unique_ptr<peer::ServerStream<peer::HandoffProtocol>> handoff;
  std::optional<peer::LivenessMonitor> prefill;
  std::shared_ptr<PeerLink> link;
  transfer::RemoteRegion region{};
  std::vector<bool> announced;  // [layer * blocks + block]
  uint32_t announced_count = 0;
  uint32_t verified_count = 0;
  TimePoint last_progress;  // of the hand-over
  std::optional<peer::HandoffEnd> end;

  // Gateway.
  std::unique_ptr<peer::ServerStream<peer::DecodeProtocol>> gateway;
  uint64_t gateway_id = 0;  // of the stream
  uint32_t sent = 0;        // index of the next generated token to send
  bool lingers = false;     // ended before the gateway came for the tokens
  Status result;            // how it ended
  request::FinishReason finish = request::FinishReason::kNone;

  std::span<const request::TokenId> generated() const { return std::span(ids).subspan(generation.prompt_tokens); }
  uint32_t remaining() const { return generation.max_new_tokens - static_cast<uint32_t>(generated().size()); }
};

struct DecodePart {
  DecodeSession* session = nullptr;  // pinned; only read on the engine's thread
  request::TokenId token = 0;        // to compute
  request::TokenId sampled = 0;
};

struct DecodeStep {
  std::vector<DecodePart> parts;
  std::vector<engine::SequenceStep> sequences;  // one a part
  Duration took{0};
  Status status;
};

}  // namespace millrace::runtime
