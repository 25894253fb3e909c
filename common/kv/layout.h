#pragma once
// How the KV cache of one model lies in memory, on the wire and on disk. A block holds kBlockTokens tokens of every
// layer, contiguous: [layer][token][K heads | V heads], element type `type`, keys after rotary embedding. One layer of
// a block is a layer block, the unit of prefill -> decode transfer; its first n tokens are its first n * row_bytes()
// bytes. A whole block is the unit of the store. Two peers exchange blocks only when their Digest() is equal.

#include <cstddef>
#include <cstdint>
#include <string>

namespace millrace::kv {

constexpr uint32_t kBlockTokens = 64;

enum class ElementType : uint8_t { kF16 = 0, kF32 = 1 };
constexpr size_t ElementBytes(ElementType type) { return type == ElementType::kF16 ? 2 : 4; }

struct Layout {
  static constexpr uint32_t kVersion = 1;

  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  ElementType type = ElementType::kF16;
  std::string model_digest;    // SHA-256 of the weights file, hex
  std::string numerics_class;  // workers of two classes never share KV

  // Bytes of one token of one layer.
  size_t row_bytes() const { return size_t{2} * kv_heads * head_dim * ElementBytes(type); }
  size_t layer_block_bytes() const { return row_bytes() * kBlockTokens; }
  size_t block_bytes() const { return layer_block_bytes() * layers; }
  size_t layer_offset(uint32_t layer) const { return layer_block_bytes() * layer; }

  // SHA-256 over kVersion, kBlockTokens and all fields, 64 hex digits.
  std::string Digest() const;

  friend bool operator==(const Layout&, const Layout&) = default;
};

constexpr uint32_t BlocksFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

// Most tokens of a prompt that may come from the store: full blocks only, and never the last token.
constexpr uint32_t MaxHitTokens(uint32_t prompt_tokens) {
  return prompt_tokens == 0 ? 0 : kBlockTokens * ((prompt_tokens - 1) / kBlockTokens);
}

}  // namespace millrace::kv
