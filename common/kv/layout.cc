#include "common/kv/layout.h"

#include "common/kv/sha256.h"

namespace millrace::kv {

std::string Layout::Digest() const {
  std::string text = "millrace-kv-layout " + std::to_string(kVersion);
  for (const uint64_t value : {uint64_t{kBlockTokens}, uint64_t{layers}, uint64_t{kv_heads}, uint64_t{head_dim},
                               static_cast<uint64_t>(type)}) {
    text.append(" ").append(std::to_string(value));
  }
  text.append(" ").append(model_digest).append(" ").append(numerics_class);
  return HexString(Sha256(text.data(), text.size()));
}

}  // namespace millrace::kv
