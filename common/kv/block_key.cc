#include "common/kv/block_key.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"
#include "common/kv/sha256.h"

namespace millrace::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are hashed as they lie in memory");

BlockKey Cut(const Sha256Digest& digest) {
  BlockKey key;
  std::copy_n(digest.begin(), key.bytes.size(), key.bytes.begin());
  return key;
}

}  // namespace

std::string BlockKey::ToHex() const { return HexString(bytes); }

BlockKey RootKey(std::string_view layout_digest, std::string_view tenant_salt) {
  std::string text = "millrace-block-root";
  text.push_back('\0');
  text.append(layout_digest).push_back('\0');
  text.append(tenant_salt);
  return Cut(Sha256(text.data(), text.size()));
}

BlockKey ChildKey(const BlockKey& parent, std::span<const int32_t> ids) {
  MR_CHECK(ids.size() == kBlockTokens);
  Sha256Stream stream;
  stream.Update(parent.bytes.data(), parent.bytes.size());
  stream.Update(ids.data(), ids.size_bytes());
  return Cut(stream.Finish());
}

std::vector<BlockKey> BlockKeys(const BlockKey& root, std::span<const int32_t> ids) {
  std::vector<BlockKey> keys;
  keys.reserve(ids.size() / kBlockTokens);
  BlockKey parent = root;
  for (size_t start = 0; start + kBlockTokens <= ids.size(); start += kBlockTokens) {
    parent = ChildKey(parent, ids.subspan(start, kBlockTokens));
    keys.push_back(parent);
  }
  return keys;
}

}  // namespace millrace::kv
