// Messages of Handoff and Store.
#include <algorithm>

#include "common/rpc/wire.h"
#include "common/rpc/wire_fields.h"

namespace millrace::rpc {
namespace {

constexpr size_t kKeyBytes = sizeof(kv::BlockKey::bytes);

std::string KeysToWire(const std::vector<kv::BlockKey>& keys) {
  std::string bytes;
  bytes.reserve(keys.size() * kKeyBytes);
  for (const kv::BlockKey& key : keys) bytes.append(key.AsBytes());
  return bytes;
}

void CopyKey(const std::string& bytes, size_t index, kv::BlockKey& out) {
  std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(index * kKeyBytes), kKeyBytes, out.bytes.begin());
}

Status KeysFromWire(const std::string& bytes, std::vector<kv::BlockKey>& out) {
  if (bytes.size() % kKeyBytes != 0) return BadField("block_keys", "is not a multiple of 16 bytes");
  const size_t count = bytes.size() / kKeyBytes;
  if (count > kMaxBlockKeys) return BadField("block_keys", "has too many keys: " + std::to_string(count));
  out.resize(count);
  for (size_t i = 0; i < count; ++i) CopyKey(bytes, i, out[i]);
  return OkStatus();
}

}  // namespace

void ToWire(const peer::Reserve& in, pb::Reserve& out) {
  out.set_incarnation(in.incarnation);
  out.set_session(in.session);
  ToWire(in.generation, *out.mutable_generation());
  out.set_layout_digest(in.layout_digest);
  ToWire(in.source, *out.mutable_source());
  out.set_source_incarnation(in.source_incarnation);
}

Status FromWire(const pb::Reserve& in, peer::Reserve& out) {
  out.incarnation = in.incarnation();
  out.source_incarnation = in.source_incarnation();
  MR_RETURN_IF_ERROR(CopyText("session", in.session(), out.session));
  MR_RETURN_IF_ERROR(FromWire(in.generation(), out.generation));
  MR_RETURN_IF_ERROR(CopyText("layout_digest", in.layout_digest(), out.layout_digest));
  return FromWire(in.source(), out.source);
}

void ToWire(const peer::Reserved&, pb::Reserved&) {}
Status FromWire(const pb::Reserved&, peer::Reserved&) { return OkStatus(); }

void ToWire(const peer::LayerBlocks& in, pb::LayerBlocks& out) {
  out.mutable_blocks()->Reserve(static_cast<int>(in.blocks.size()));
  for (const peer::LayerBlock& block : in.blocks) {
    pb::LayerBlock& entry = *out.add_blocks();
    entry.set_layer(block.layer);
    entry.set_block(block.block);
    entry.set_offset_bytes(block.offset);
    entry.set_length_bytes(block.length);
    entry.set_crc32c(block.crc32c);
  }
}

Status FromWire(const pb::LayerBlocks& in, peer::LayerBlocks& out) {
  if (static_cast<size_t>(in.blocks_size()) > kMaxLayerBlocks) return BadField("blocks", "has too many entries");
  out.blocks.reserve(static_cast<size_t>(in.blocks_size()));
  for (const pb::LayerBlock& entry : in.blocks()) {
    out.blocks.push_back({.layer = entry.layer(),
                          .block = entry.block(),
                          .offset = entry.offset_bytes(),
                          .length = entry.length_bytes(),
                          .crc32c = entry.crc32c()});
  }
  return OkStatus();
}

void ToWire(const peer::HandoffEnd& in, pb::HandoffEnd& out) {
  out.set_first_token_id(in.first_token);
  out.set_cached_tokens(in.cached_tokens);
}

Status FromWire(const pb::HandoffEnd& in, peer::HandoffEnd& out) {
  out.cached_tokens = in.cached_tokens();
  return CopyTokenId("first_token_id", in.first_token_id(), out.first_token);
}

void ToWire(const peer::HandoffComplete&, pb::HandoffComplete&) {}
Status FromWire(const pb::HandoffComplete&, peer::HandoffComplete&) { return OkStatus(); }

void ToWire(const peer::StoreHello& in, pb::StoreHello& out) {
  out.set_layout_digest(in.layout_digest);
  out.set_block_bytes(in.block_bytes);
  ToWire(in.memory, *out.mutable_memory());
  out.set_incarnation(in.incarnation);
}

Status FromWire(const pb::StoreHello& in, peer::StoreHello& out) {
  MR_RETURN_IF_ERROR(CopyText("layout_digest", in.layout_digest(), out.layout_digest));
  out.block_bytes = in.block_bytes();
  out.incarnation = in.incarnation();
  return FromWire(in.memory(), out.memory);
}

void ToWire(const peer::StoreWelcome& in, pb::StoreWelcome& out) {
  out.set_incarnation(in.incarnation);
  ToWire(in.memory, *out.mutable_memory());
  out.set_max_load_blocks(in.max_load_blocks);
}

Status FromWire(const pb::StoreWelcome& in, peer::StoreWelcome& out) {
  out.incarnation = in.incarnation();
  out.max_load_blocks = in.max_load_blocks();
  return FromWire(in.memory(), out.memory);
}

void ToWire(const peer::LookupBlocks& in, pb::LookupBlocks& out) {
  out.set_tag(in.tag);
  out.set_block_keys(KeysToWire(in.keys));
}

Status FromWire(const pb::LookupBlocks& in, peer::LookupBlocks& out) {
  out.tag = in.tag();
  return KeysFromWire(in.block_keys(), out.keys);
}

void ToWire(const peer::LookupDone& in, pb::LookupDone& out) {
  out.set_tag(in.tag);
  out.set_present_blocks(in.present);
}

Status FromWire(const pb::LookupDone& in, peer::LookupDone& out) {
  out.tag = in.tag();
  out.present = in.present_blocks();
  return OkStatus();
}

void ToWire(const peer::LoadBlocks& in, pb::LoadBlocks& out) {
  out.set_tag(in.tag);
  out.set_block_keys(KeysToWire(in.keys));
}

Status FromWire(const pb::LoadBlocks& in, peer::LoadBlocks& out) {
  out.tag = in.tag();
  return KeysFromWire(in.block_keys(), out.keys);
}

void ToWire(const peer::LoadDone& in, pb::LoadDone& out) {
  out.set_tag(in.tag);
  out.set_lease(in.lease);
  for (const peer::LoadedBlock& block : in.blocks) {
    pb::LoadedBlock& entry = *out.add_blocks();
    entry.set_offset_bytes(block.offset);
    entry.set_crc32c(block.crc32c);
  }
}

Status FromWire(const pb::LoadDone& in, peer::LoadDone& out) {
  if (static_cast<size_t>(in.blocks_size()) > kMaxBlockKeys) return BadField("blocks", "has too many entries");
  out.tag = in.tag();
  out.lease = in.lease();
  out.blocks.reserve(static_cast<size_t>(in.blocks_size()));
  for (const pb::LoadedBlock& entry : in.blocks()) {
    out.blocks.push_back({.offset = entry.offset_bytes(), .crc32c = entry.crc32c()});
  }
  return OkStatus();
}

void ToWire(const peer::ReleaseLease& in, pb::ReleaseLease& out) { out.set_lease(in.lease); }

Status FromWire(const pb::ReleaseLease& in, peer::ReleaseLease& out) {
  out.lease = in.lease();
  return OkStatus();
}

void ToWire(const peer::PutBlock& in, pb::PutBlock& out) {
  out.set_tag(in.tag);
  out.set_block_key(std::string(in.key.AsBytes()));
  out.set_offset_bytes(in.offset);
  out.set_crc32c(in.crc32c);
}

Status FromWire(const pb::PutBlock& in, peer::PutBlock& out) {
  if (in.block_key().size() != kKeyBytes) return BadField("block_key", "is not 16 bytes");
  out.tag = in.tag();
  CopyKey(in.block_key(), 0, out.key);
  out.offset = in.offset_bytes();
  out.crc32c = in.crc32c();
  return OkStatus();
}

void ToWire(const peer::PutDone& in, pb::PutDone& out) {
  out.set_tag(in.tag);
  ToWire(in.status, *out.mutable_outcome());
}

Status FromWire(const pb::PutDone& in, peer::PutDone& out) {
  if (!in.has_outcome()) return BadField("outcome", "is missing");
  out.tag = in.tag();
  return FromWire(in.outcome(), out.status);
}

}  // namespace millrace::rpc
