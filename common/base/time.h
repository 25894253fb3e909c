#pragma once
// Monotonic time. Every deadline in the project is an absolute TimePoint of one Clock; wall-clock time appears only in
// logs and in API timestamps.

#include <chrono>
#include <cstdint>

namespace millrace {

using Duration = std::chrono::nanoseconds;
struct MonotonicTag {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
};
using TimePoint = std::chrono::time_point<MonotonicTag, Duration>;

constexpr TimePoint kNever = TimePoint::max();

constexpr Duration Milliseconds(int64_t ms) { return std::chrono::milliseconds(ms); }
constexpr Duration Seconds(int64_t s) { return std::chrono::seconds(s); }
constexpr double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }
constexpr double ToMilliseconds(Duration d) { return ToSeconds(d) * 1e3; }

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

// The machine's monotonic clock.
const Clock& SystemClock();

// Milliseconds since the Unix epoch, for logs and API timestamps only.
int64_t WallClockMs();

}  // namespace millrace
