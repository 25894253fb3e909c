#include "common/engine/mapped_file.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>

#include "common/base/log.h"

namespace millrace::engine {
namespace {

constexpr std::string_view kTimeZero = "1970-01-01T00:00:00.000Z";  // how a formatter writes 0

struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};  // 0: not watched; stored last
  uintptr_t end = 0;
  std::array<char, 2048> line{};  // of the log; its time is written when it happens
  size_t line_bytes = 0;
  size_t time_at = 0;  // npos: the line has none
};

std::array<Slot, 16> g_slots;
std::atomic_flag g_lost = ATOMIC_FLAG_INIT;
struct sigaction g_before;

// The handler and what it calls are async-signal-safe.
void WriteDigits(char* at, unsigned value, int width) {
  for (int i = width - 1; i >= 0; --i, value /= 10) at[i] = static_cast<char>('0' + value % 10);
}

void WriteTime(char* at) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::chrono::sys_seconds seconds{std::chrono::seconds{now.tv_sec}};
  const auto midnight = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day day{midnight};
  const std::chrono::hh_mm_ss time{seconds - midnight};
  WriteDigits(at, static_cast<unsigned>(static_cast<int>(day.year())), 4);
  WriteDigits(at + 5, static_cast<unsigned>(day.month()), 2);
  WriteDigits(at + 8, static_cast<unsigned>(day.day()), 2);
  WriteDigits(at + 11, static_cast<unsigned>(time.hours().count()), 2);
  WriteDigits(at + 14, static_cast<unsigned>(time.minutes().count()), 2);
  WriteDigits(at + 17, static_cast<unsigned>(time.seconds().count()), 2);
  WriteDigits(at + 20, static_cast<unsigned>(now.tv_nsec / 1000000), 3);
}

[[noreturn]] void Lose(Slot& slot) {
  while (g_lost.test_and_set()) pause();  // another thread is ending the process
  if (slot.time_at != std::string::npos) WriteTime(slot.line.data() + slot.time_at);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, slot.line.data(), slot.line_bytes);
  _exit(kMappedFileLostExit);
}

void OnBusError(int, siginfo_t* info, void*) {
  if (info->si_code > 0) {  // raised by an access, not sent
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Slot& slot : g_slots) {
      const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
      if (begin != 0 && address >= begin && address < slot.end) Lose(slot);
    }
  }
  // The access is made again when this returns.
  sigaction(SIGBUS, &g_before, nullptr);
  if (info->si_code <= 0) raise(SIGBUS);
}

bool InstallHandler() {
  struct sigaction action {};
  action.sa_sigaction = &OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return sigaction(SIGBUS, &action, &g_before) == 0;
}

}  // namespace

MappedFileWatch::MappedFileWatch(const void* begin, size_t bytes, const std::string& path) {
  [[maybe_unused]] static const bool installed = InstallHandler();
  const auto found =
      std::find_if(g_slots.begin(), g_slots.end(), [](Slot& slot) { return !slot.taken.exchange(true); });
  if (found == g_slots.end()) return;
  slot_ = static_cast<int>(found - g_slots.begin());
  const std::string line =
      FormatLog(0, LogLevel::kError, "mapped_file_lost",
                {{"path", path},
                 {"error",
                  "the file shrank, or its disk failed, while it was mapped: this process ends; started "
                  "again it makes a damaged cache file anew"}});
  found->line_bytes = std::min(line.size(), found->line.size());
  std::memcpy(found->line.data(), line.data(), found->line_bytes);
  found->time_at = line.find(kTimeZero);
  found->end = reinterpret_cast<uintptr_t>(begin) + bytes;
  found->begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
}

MappedFileWatch::~MappedFileWatch() {
  if (slot_ < 0) return;
  g_slots[static_cast<size_t>(slot_)].begin.store(0);
  g_slots[static_cast<size_t>(slot_)].taken.store(false);
}

}  // namespace millrace::engine
