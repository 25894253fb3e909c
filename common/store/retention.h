#pragma once
// How long a block is kept. Times are seconds since the Unix epoch, because they must mean the same after a restart.

#include <cstdint>

namespace millrace::store {

enum class RetentionClass : uint8_t { kChat = 0, kAgent = 1 };
constexpr uint8_t kRetentionClasses = 2;

struct Retention {
  int64_t chat_seconds = 7 * 86400;
  int64_t agent_seconds = 3 * 86400;
  // No block younger than this is evicted to make room for another; when nothing else is left, puts are refused.
  int64_t guaranteed_seconds = 72 * 3600;

  int64_t Seconds(RetentionClass retention) const {
    return retention == RetentionClass::kAgent ? agent_seconds : chat_seconds;
  }
};

}  // namespace millrace::store
