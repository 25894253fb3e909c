#pragma once
// What the tests of tiers share: blocks whose content follows from a number, a folder that goes away, a settable clock.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/store/tier.h"

namespace millrace::store {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "millrace_tier_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TestBlock {
  explicit TestBlock(uint64_t number, size_t size = 10000) : bytes(size) {
    for (int i = 0; i < 8; ++i) key.bytes[i] = static_cast<uint8_t>(number >> (56 - 8 * i));
    Rng rng(number);
    for (auto& byte : bytes) byte = static_cast<std::byte>(rng.Next32());
    crc32c = Crc32c(bytes.data(), bytes.size());
  }
  TierPut put(RetentionClass retention = RetentionClass::kChat) const { return {key, bytes, crc32c, retention}; }

  kv::BlockKey key;
  std::vector<std::byte> bytes;
  uint32_t crc32c = 0;
};

// A clock that stands until told otherwise.
struct TestClock {
  std::shared_ptr<std::atomic<int64_t>> now = std::make_shared<std::atomic<int64_t>>(1'700'000'000);
  std::function<int64_t()> Reader() const {
    return [now = now] { return now->load(); };
  }
};

inline Status PutBlock(Tier& tier, const TestBlock& block) {
  const TierPut put = block.put();
  return tier.Put({&put, 1}).front();
}

// OK when the tier returns exactly the block.
inline Status CheckBlock(Tier& tier, const TestBlock& block) {
  std::vector<std::byte> into(block.bytes.size());
  const auto crc32c = tier.Get(block.key, into);
  if (!crc32c.ok()) return crc32c.status();
  if (*crc32c != block.crc32c) return Internal("another checksum");
  return into == block.bytes ? OkStatus() : Internal("WRONG BYTES");
}

}  // namespace millrace::store
