#pragma once
// MR_CHECK: what must be true whatever any client, peer, disk or device does; the process dies with the place when it
// is not. Input from outside is refused with a Status and never reaches a check.

namespace millrace {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

#define MR_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::millrace::CheckFailed(#condition, __FILE__, __LINE__))

}  // namespace millrace
