#include "common/store/buffer_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "common/base/random.h"

namespace millrace::store {
namespace {

TEST(BufferArena, RefusesWhatDoesNotFit) {
  BufferArena arena(10000, 4096);  // two buffers' worth
  EXPECT_EQ(arena.total_bytes(), 8192u);
  EXPECT_FALSE(arena.Allocate(0).has_value());
  EXPECT_FALSE(arena.Allocate(8193).has_value());
  EXPECT_EQ(arena.Allocate(1), 0u);
  EXPECT_EQ(arena.Allocate(4096), 4096u);
  EXPECT_FALSE(arena.Allocate(1).has_value());
  arena.Release(0);
  EXPECT_EQ(arena.Allocate(4096), 0u);
}

TEST(BufferArena, RandomUseNeverOverlapsAndComesBackWhole) {
  constexpr uint64_t kBytes = 1 << 20;
  BufferArena arena(kBytes, 4096);
  std::map<uint64_t, uint64_t> held;
  Rng rng(3);
  for (int step = 0; step < 20000; ++step) {
    if (rng.Below(2) == 0) {
      const uint64_t bytes = 1 + rng.Below(60000);
      if (const auto offset = arena.Allocate(bytes)) {
        ASSERT_EQ(*offset % 4096, 0u);
        ASSERT_LE(*offset + bytes, kBytes);
        const auto next = held.lower_bound(*offset);
        if (next != held.end()) {
          ASSERT_LE(*offset + bytes, next->first);
        }
        if (next != held.begin()) {
          ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *offset);
        }
        held.emplace(*offset, bytes);
      }
    } else if (!held.empty()) {
      auto victim = std::next(held.begin(), static_cast<long>(rng.Below(held.size())));
      arena.Release(victim->first);
      held.erase(victim);
    }
    ASSERT_EQ(arena.buffers(), held.size());
  }
  for (const auto& [offset, bytes] : held) arena.Release(offset);
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_EQ(arena.Allocate(kBytes), 0u);
}

}  // namespace
}  // namespace millrace::store
