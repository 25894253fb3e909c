#pragma once
// Threads that run one body together, with barriers in it. Idle threads sleep on a futex; a thread that waits for the
// others spins at most 50 us first. Nothing is pinned. How work is handed out never reaches the results: an item is
// computed by one thread, wholly.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace millrace::engine::cpu {

class ThreadTeam {
 public:
  // The calling thread of Run is one of `threads` (at least 1).
  explicit ThreadTeam(uint32_t threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  uint32_t size() const { return size_; }

  // Calls body(member) on each thread, member 0 on the caller's, and returns when all have returned. One call at a
  // time.
  void Run(const std::function<void(uint32_t)>& body);

  // In a body, by every member alike: items [0, count) are handed out one by one, then all wait for all.
  template <class F>
  void ForEach(uint32_t count, F&& item) {
    for (;;) {
      const uint32_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) break;
      item(index);
    }
    Barrier();
  }
  void Barrier();

 private:
  // A counter that threads wait on until it leaves a value.
  class Gate {
   public:
    uint32_t value() const { return value_.load(std::memory_order_acquire); }
    void Advance();
    void WaitWhile(uint32_t value);

   private:
    std::atomic<uint32_t> value_{0};
    std::atomic<uint32_t> sleepers_{0};
    std::atomic<uint32_t> spin_ns_{50'000};  // how long a wait spins before it sleeps
  };

  void Work(uint32_t member);

  const uint32_t size_;
  alignas(64) std::atomic<uint32_t> next_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) Gate barrier_;
  alignas(64) Gate start_;
  const std::function<void(uint32_t)>* body_ = nullptr;  // written before start_ advances
  bool stopping_ = false;                                // likewise
  std::vector<std::thread> threads_;
};

}  // namespace millrace::engine::cpu
