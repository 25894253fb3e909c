#pragma once
// The control plane's messages, one protocol per pair of roles (docs/architecture.md has the picture). KV bytes never
// travel here: messages carry addresses that the owner of the destination reads through common/transfer.
//
// Liveness (all streams that say Heartbeat): the server sends one every heartbeat interval while the stream is open;
// silence for the silence deadline, or `busy` without growing `progress` for the progress deadline, is death of the
// peer.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/cluster/instance.h"
#include "common/kv/block_key.h"
#include "common/request/generation.h"

namespace millrace::peer {

struct Heartbeat {
  uint64_t progress = 0;
  bool busy = false;
};

// Where a peer's memory can be read: transport address of the process and descriptor of one region.
struct MemoryAddress {
  std::string transport_address;
  std::string region_descriptor;
};

// ---- worker -> every replica of its balancer ------------------------------------------------------------------------
// First message WorkerHello, then a LoadReport on change and at least each heartbeat interval.
struct WorkerHello {
  cluster::InstanceInfo info;
};
struct LoadReport {
  cluster::Load load;
};
struct ReportProtocol {
  using Up = std::variant<WorkerHello, LoadReport>;
  using Down = std::variant<Heartbeat>;
  static constexpr const char* kName = "Report";
};

// ---- anyone -> balancer: pick an instance
// ----------------------------------------------------------------------------- One PickRequest up. Heartbeats down
// while it waits, then one Route and a close; a Shed is the closing status (kOverloaded, kNoInstance, kModelNotFound),
// with retry_after_ms.
struct PickRequest {
  std::string request_id;
  std::string model;           // by name, from the gateway; empty when layout_digest is given
  std::string layout_digest;   // prefill asks for a decode instance of exactly its own
  std::string model_digest;    // the gateway asks for workers of exactly its own model file
  uint32_t prompt_tokens = 0;  // tokens whose KV will be computed (prefill) or held (decode)
  uint32_t max_new_tokens = 0;
  std::vector<cluster::Incarnation> excluded;  // tried before for this request
};
struct Route {
  std::string instance_id;
  cluster::Incarnation incarnation = 0;
  std::string address;
};
struct PickProtocol {
  using Up = std::variant<PickRequest>;
  using Down = std::variant<Heartbeat, Route>;
  static constexpr const char* kName = "Pick";
};

// ---- gateway -> every replica of each balancer: what the pool can do
// ---------------------------------------------------- PoolState at once, on change, and with Heartbeats between.
struct WatchRequest {};
struct PoolModel {
  cluster::ModelIdentity model;
  uint32_t ready_instances = 0;
  friend bool operator==(const PoolModel&, const PoolModel&) = default;
};
struct PoolState {
  std::vector<PoolModel> models;           // sorted by name, then layout digest
  std::vector<cluster::Incarnation> live;  // sorted; an instance that left this list is dead
  friend bool operator==(const PoolState&, const PoolState&) = default;
};
struct WatchProtocol {
  using Up = std::variant<WatchRequest>;
  using Down = std::variant<Heartbeat, PoolState>;
  static constexpr const char* kName = "Watch";
};

// ---- gateway -> prefill worker
// ---------------------------------------------------------------------------------------- One PrefillRequest up. Down:
// Heartbeats throughout; PrefillAccepted (a queue place is held; the gateway may commit to HTTP 200); DecodeTarget when
// a slot was reserved (again when it had to move: the newest counts); FirstToken; then the worker closes with OK once
// the hand-over is complete (or at once when FirstToken ended the request). Cancelling the stream frees everything.
struct PrefillRequest {
  cluster::Incarnation incarnation = 0;  // of the worker meant; another one refuses with kPeerLost
  request::Generation generation;
  std::vector<cluster::Incarnation> excluded_decode;  // decode instances that failed this request before
};
struct PrefillAccepted {};
struct DecodeTarget {
  std::string address;
  cluster::Incarnation incarnation = 0;
  std::string session;
};
struct FirstToken {
  request::TokenId token = 0;
  uint32_t cached_tokens = 0;
  request::FinishReason finish = request::FinishReason::kNone;
};
struct PrefillProtocol {
  using Up = std::variant<PrefillRequest>;
  using Down = std::variant<Heartbeat, PrefillAccepted, DecodeTarget, FirstToken>;
  static constexpr const char* kName = "Prefill";
};

// ---- prefill worker -> decode worker: reserve a slot and hand the KV over
// -------------------------------------------------- Reserve up; Reserved down (or a close: kOverloaded,
// kShapeMismatch, kPeerLost, kDraining). Then LayerBlocks as layers finish, in any order, each (layer, block) once;
// HandoffEnd last, with the first token. Heartbeats both ways. HandoffComplete down when every layer block was pulled
// and verified; the worker of the source pages unpins only then, or when the stream ended and its lease ran out.
// kKvCorrupt closes a hand-over whose bytes failed the checksum.
struct Reserve {
  cluster::Incarnation incarnation = 0;  // of the decode worker meant
  std::string session;                   // 128 random bits, hex; chosen by the prefill worker
  request::Generation generation;
  std::string layout_digest;
  MemoryAddress source;
  cluster::Incarnation source_incarnation = 0;
};
struct Reserved {};
struct LayerBlock {
  uint32_t layer = 0;
  uint32_t block = 0;   // index within the sequence
  uint64_t offset = 0;  // in the source region
  uint32_t length = 0;  // bytes: tokens in the block * row_bytes
  uint32_t crc32c = 0;
};
struct LayerBlocks {
  std::vector<LayerBlock> blocks;
};
struct HandoffEnd {
  request::TokenId first_token = 0;
  uint32_t cached_tokens = 0;
};
struct HandoffComplete {};
struct HandoffProtocol {
  using Up = std::variant<Heartbeat, Reserve, LayerBlocks, HandoffEnd>;
  using Down = std::variant<Heartbeat, Reserved, HandoffComplete>;
  static constexpr const char* kName = "Handoff";
};

// ---- gateway -> decode worker: the tokens of a session
// ---------------------------------------------------------------------- Attach up. Down: Heartbeats, TokenChunks in
// order without gaps starting at generated index `from`, DecodeFinished, close OK. Cancelling frees the session.
// kKvEvicted: preempted, re-enter at prefill, not a failure. kNotFound: no such session.
struct Attach {
  cluster::Incarnation incarnation = 0;
  std::string session;
  uint32_t from = 0;  // index of the first generated token wanted (0 = the first after the original prompt)
};
struct TokenChunk {
  uint32_t first_index = 0;
  std::vector<request::TokenId> tokens;
};
struct DecodeFinished {
  request::FinishReason finish = request::FinishReason::kNone;
};
struct DecodeProtocol {
  using Up = std::variant<Attach>;
  using Down = std::variant<Heartbeat, TokenChunk, DecodeFinished>;
  static constexpr const char* kName = "Decode";
};

// ---- worker -> kvcache-store
// ---------------------------------------------------------------------------------------------- StoreHello up,
// StoreWelcome down (or a close with kShapeMismatch, kInvalidArgument). Then any number of calls, told apart by `tag`,
// answered in any order. Load: the store reads blocks from disk into its buffers and pins them under `lease` until
// Release or the lease time (30 s); the worker pulls them. Put: the store pulls the block from the worker's page, which
// the worker pins until PutDone; an answer of OK means it is on disk and visible. Heartbeats both ways.
struct StoreHello {
  std::string layout_digest;
  uint64_t block_bytes = 0;
  MemoryAddress memory;  // the worker's KV memory
  cluster::Incarnation incarnation = 0;
};
struct StoreWelcome {
  cluster::Incarnation incarnation = 0;
  MemoryAddress memory;          // the store's read buffers
  uint32_t max_load_blocks = 0;  // most keys in one LoadBlocks
};
struct LookupBlocks {
  uint64_t tag = 0;
  std::vector<kv::BlockKey> keys;  // a chain, parent first
};
struct LookupDone {
  uint64_t tag = 0;
  uint32_t present = 0;  // length of the longest present prefix of the chain
};
struct LoadBlocks {
  uint64_t tag = 0;
  std::vector<kv::BlockKey> keys;
};
struct LoadedBlock {
  uint64_t offset = 0;  // in the store's region
  uint32_t crc32c = 0;  // of the whole block
};
struct LoadDone {
  uint64_t tag = 0;
  uint64_t lease = 0;  // 0 when no block was loaded
  std::vector<LoadedBlock>
      blocks;  // a prefix of the keys asked for; shorter when one is missing, corrupt or buffers are short
};
struct ReleaseLease {
  uint64_t lease = 0;
};
struct PutBlock {
  uint64_t tag = 0;
  kv::BlockKey key;
  uint64_t offset = 0;  // in the worker's region
  uint32_t crc32c = 0;
};
struct PutDone {
  uint64_t tag = 0;
  Status status;  // OK also when the block was there before
};
struct StoreProtocol {
  using Up = std::variant<Heartbeat, StoreHello, LookupBlocks, LoadBlocks, ReleaseLease, PutBlock>;
  using Down = std::variant<Heartbeat, StoreWelcome, LookupDone, LoadDone, PutDone>;
  static constexpr const char* kName = "Store";
};

// Defaults of the liveness rules; each is a flag.
struct Liveness {
  Duration heartbeat = Milliseconds(250);
  Duration silence = Milliseconds(1500);
  Duration progress = Milliseconds(5000);
};

}  // namespace millrace::peer
