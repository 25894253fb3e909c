#include "common/engine/cpu/thread_team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

namespace millrace::engine::cpu {
namespace {

constexpr std::chrono::microseconds kSpin(50);
constexpr int kPausesPerClockRead = 64;

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

void ThreadTeam::Gate::WaitWhile(uint32_t value) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (value_.load(std::memory_order_acquire) != value) return;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == value) Futex(&value_, FUTEX_WAIT, value);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
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
