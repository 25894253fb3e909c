#include "common/transfer/anonymous_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <string>

namespace millrace::transfer {
namespace {

class AnonymousMemory final : public Memory {
 public:
  explicit AnonymousMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  ~AnonymousMemory() override { munmap(bytes_.data(), bytes_.size()); }
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  const std::span<std::byte> bytes_;
};

std::optional<uint64_t> ReadNumber(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // absent, or "max"
  return value;
}

uint64_t MachineAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  std::string rest;
  while (file >> name >> kib && std::getline(file, rest)) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return std::numeric_limits<uint64_t>::max();
}

}  // namespace

uint64_t AvailableMemory() {
  uint64_t available = MachineAvailable();
  const std::optional<uint64_t> limit = ReadNumber("/sys/fs/cgroup/memory.max");
  const std::optional<uint64_t> used = ReadNumber("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, *limit - std::min(*limit, *used));
  return available;
}

Status CheckRoom(size_t size) {
  const uint64_t available = AvailableMemory();
  if (size <= available) return OkStatus();
  return {Code::kResourceExhausted, "no room for " + std::to_string(size >> 20) +
                                        " MiB: " + std::to_string(available >> 20) + " MiB are available"};
}

StatusOr<std::unique_ptr<Memory>> MakeAnonymousMemory(size_t size) {
  if (size == 0) return InvalidArgument("memory of 0 bytes");
  MR_RETURN_IF_ERROR(CheckRoom(size));
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "memory of " + std::to_string(size) + " bytes");
  return std::unique_ptr<Memory>(std::make_unique<AnonymousMemory>(std::span(static_cast<std::byte*>(address), size)));
}

}  // namespace millrace::transfer
