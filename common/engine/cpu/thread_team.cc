#include "common/engine/cpu/thread_team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "common/base/time.h"

namespace millrace::engine::cpu {
namespace {

constexpr uint32_t kMostSpinNs = 50'000, kLeastSpinNs = 3'000;
// A wait shorter than this would have been met by spinning, the wake-up taken off.
constexpr uint32_t kShortWaitNs = 100'000;
constexpr int kPausesPerClockRead = 32;

int64_t NowNs() { return SystemClock().Now().time_since_epoch().count(); }

void Futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

}  // namespace

// Either the sleeper's count is seen here, or the new value is seen by the sleeper: both sides are sequentially
// consistent.
void ThreadTeam::Gate::Advance() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) Futex(&value_, FUTEX_WAKE, INT_MAX);
}

// Spins for as long as pays: where others use the processors, the thread that is waited for may not run for
// milliseconds, and spinning only keeps it from running.
void ThreadTeam::Gate::WaitWhile(uint32_t value) {
  const uint32_t spin_ns = spin_ns_.load(std::memory_order_relaxed);
  const int64_t start = NowNs();
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (value_.load(std::memory_order_acquire) != value) return;
      __builtin_ia32_pause();
    }
  } while (NowNs() - start < spin_ns);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == value) Futex(&value_, FUTEX_WAIT, value);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  const bool was_short = NowNs() - start < kShortWaitNs;
  spin_ns_.store(was_short ? kMostSpinNs : std::max(spin_ns / 2, kLeastSpinNs), std::memory_order_relaxed);
}

ThreadTeam::ThreadTeam(uint32_t threads) : size_(threads == 0 ? 1 : threads) {
  for (uint32_t member = 1; member < size_; ++member) threads_.emplace_back([this, member] { Work(member); });
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  start_.Advance();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::Work(uint32_t member) {
  for (uint32_t turn = 0;; ++turn) {
    start_.WaitWhile(turn);
    if (stopping_) return;
    (*body_)(member);
    Barrier();
  }
}

void ThreadTeam::Run(const std::function<void(uint32_t)>& body) {
  body_ = &body;
  start_.Advance();
  body(0);
  Barrier();
}

void ThreadTeam::Barrier() {
  const uint32_t turn = barrier_.value();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    barrier_.Advance();
    return;
  }
  barrier_.WaitWhile(turn);
}

}  // namespace millrace::engine::cpu
