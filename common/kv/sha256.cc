#include "common/kv/sha256.h"

#include <openssl/evp.h>

#include "common/base/check.h"

namespace millrace::kv {

struct Sha256Stream::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  MR_CHECK(state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Update(const void* data, size_t size) {
  MR_CHECK(EVP_DigestUpdate(state_->context, data, size) == 1);
}

Sha256Digest Sha256Stream::Finish() {
  Sha256Digest digest;
  MR_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
  return digest;
}

Sha256Digest Sha256(const void* data, size_t size) {
  Sha256Digest digest;
  MR_CHECK(EVP_Digest(data, size, digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  return digest;
}

std::string HexString(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace millrace::kv
