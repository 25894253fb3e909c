#pragma once
// CRC32C (Castagnoli, RFC 3720 appendix B.4): the checksum of every KV byte that crosses a process or a disk.

#include <cstddef>
#include <cstdint>

namespace millrace {

// Of `size` bytes, continuing from `crc` (0 to start): Crc32c(b, n, Crc32c(a, m)) == Crc32c(ab, m + n). Thread-safe.
uint32_t Crc32c(const void* data, size_t size, uint32_t crc = 0);

}  // namespace millrace
