#pragma once
// One message of each kind with every field set to something that is not its default.

#include <string>
#include <vector>

#include "common/peer/protocols.h"

namespace millrace::rpc {

inline kv::BlockKey SampleKey(uint8_t first) {
  kv::BlockKey key;
  for (size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = static_cast<uint8_t>(first + i);
  return key;
}

inline cluster::ModelIdentity SampleModel() {
  return {.name = "tiny", .layout_digest = "d1ge57", .context_tokens = 2048, .model_digest = "f11e"};
}

inline peer::MemoryAddress SampleMemory() {
  return {.transport_address = std::string("\x00\xff addr", 7), .region_descriptor = std::string("\x80\x00key", 5)};
}

inline request::Generation SampleGeneration() {
  request::Generation generation;
  generation.request_id = "req-1";
  generation.tokens = {1, 0, 2'147'483'647, 7};
  generation.prompt_tokens = 3;
  generation.max_new_tokens = 16;
  generation.sampling = {.temperature = 0.5f,
                         .top_p = 0.25f,
                         .top_k = 40,
                         .min_p = 0.125f,
                         .presence_penalty = -1.5f,
                         .frequency_penalty = 1.75f,
                         .repetition_penalty = 1.25f,
                         .logit_bias = {{0, -100.0f}, {5, 2.5f}},
                         .seed = 0xfedcba9876543210};
  generation.stop_ids = {2, 0};
  generation.min_tokens = 4;
  generation.tenant_salt = std::string("s\x00\xfe", 3);
  generation.cache_read = false;
  generation.cache_write = false;
  return generation;
}

inline peer::WorkerHello SampleHello() {
  return {.info = {.instance_id = "decode-0",
                   .incarnation = 0xffffffffffffffff,
                   .role = cluster::Role::kDecode,
                   .address = "127.0.0.1:9",
                   .model = SampleModel(),
                   .max_sequences = 8,
                   .total_blocks = 99}};
}

inline peer::LoadReport SampleLoad() {
  return {.load = {.sequence = 1,
                   .ready = true,
                   .draining = true,
                   .busy = true,
                   .progress = 2,
                   .queued_requests = 3,
                   .queued_tokens = 4,
                   .running = 5,
                   .kv_tokens = 6,
                   .free_blocks = 7,
                   .tokens_per_second = 8.5}};
}

inline peer::PickRequest SamplePick() {
  return {.request_id = "r",
          .model = "m",
          .layout_digest = "l",
          .model_digest = "f11e",
          .prompt_tokens = 1,
          .max_new_tokens = 2,
          .excluded = {3, 0xffffffffffffffff}};
}

inline peer::PoolState SamplePool() { return {.models = {{SampleModel(), 3}, {{}, 0}}, .live = {1, 2, 3}}; }

inline peer::Reserve SampleReserve() {
  return {.incarnation = 1,
          .session = "abcd",
          .generation = SampleGeneration(),
          .layout_digest = "l",
          .source = SampleMemory(),
          .source_incarnation = 2};
}

inline peer::LayerBlocks SampleBlocks() {
  return {.blocks = {{.layer = 1, .block = 2, .offset = 0x123456789abc, .length = 4, .crc32c = 0xdeadbeef}, {}}};
}

inline peer::StoreHello SampleStoreHello() {
  return {.layout_digest = "l", .block_bytes = 1ull << 40, .memory = SampleMemory(), .incarnation = 9};
}

inline Status SampleStatus() {
  return Status(Code::kResourceExhausted, Reason::kNoSpace, "disk full").WithRetryAfterMs(0).WithParam("path");
}

}  // namespace millrace::rpc
