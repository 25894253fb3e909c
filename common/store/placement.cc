#include "common/store/placement.h"

#include <cstdint>
#include <cstring>

#include "common/base/check.h"
#include "common/base/random.h"

namespace millrace::store {
namespace {

// FNV-1a: only spreads the addresses; the mixing is Philox's.
uint64_t AddressHash(const std::string& address) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : address) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

uint64_t Weight(const kv::BlockKey& chain, const std::string& address) {
  std::array<uint32_t, 4> counter{};
  static_assert(sizeof(counter) == sizeof(chain.bytes));
  std::memcpy(counter.data(), chain.bytes.data(), sizeof(counter));
  const uint64_t hash = AddressHash(address);
  const auto bits = Philox4x32(counter, {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)});
  return (uint64_t{bits[0]} << 32) | bits[1];
}

}  // namespace

size_t PickStore(const kv::BlockKey& chain, std::span<const std::string> addresses) {
  MR_CHECK(!addresses.empty());
  size_t best = 0;
  uint64_t best_weight = Weight(chain, addresses[0]);
  for (size_t i = 1; i < addresses.size(); ++i) {
    const uint64_t weight = Weight(chain, addresses[i]);
    if (weight > best_weight || (weight == best_weight && addresses[i] < addresses[best])) {
      best = i;
      best_weight = weight;
    }
  }
  return best;
}

}  // namespace millrace::store
