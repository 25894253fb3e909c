#pragma once
// SHA-256 (FIPS 180-4) by libcrypto: the project's one cryptographic hash.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace millrace::kv {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(const void* data, size_t size);
std::string HexString(std::span<const uint8_t> bytes);  // lower case

// For input in pieces. Not thread-safe.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  void Update(const void* data, size_t size);
  Sha256Digest Finish();  // once; no Update after it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace::kv
