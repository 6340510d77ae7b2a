// The threads that one process computes with. Eight processes on two cores must not spin against each other:
// idle threads sleep, and work of microseconds is done before one of them would be awake, by the caller
// alone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tpsim::rank {

// Cores that this process may use, at least 1.
std::uint32_t usable_cores();

class ThreadPool {
 public:
  using Work = std::function<void(std::uint32_t index, std::uint32_t thread)>;

  // `threads` in all, the caller included, which share all work; 0: the cores that this process may use
  // divided by `processes_on_host`, at least 1, which leave work of microseconds to the caller.
  explicit ThreadPool(std::uint32_t threads = 0, std::uint32_t processes_on_host = 1);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  std::uint32_t size() const { return static_cast<std::uint32_t>(threads_.size()) + 1; }
  // Calls work(i, thread) for i in [0, count), thread in [0, size()), and returns when all are done. The
  // first exception of `work` is thrown here, and what was not begun by then is left out; a signal that asks
  // to stop is one (Stopped). Not reentrant. Which thread does what depends on how long it takes; what comes
  // out must not.
  void parallel_for(std::uint32_t count, const Work& work);

 private:
  void serve(std::uint32_t thread);
  // Both say how much they did.
  std::uint32_t begin_alone(std::uint32_t count, const Work& work);
  std::uint32_t take_part(std::uint32_t thread);
  void note_round(std::chrono::steady_clock::duration whole);

  std::mutex mutex_;
  std::condition_variable begin_;
  std::condition_variable end_;
  // Written under the mutex, looked at without.
  std::atomic<std::uint64_t> round_{0};    // of parallel_for
  std::atomic<std::uint32_t> working_{0};  // threads that have not finished the round
  bool stop_ = false;
  const Work* work_ = nullptr;
  std::uint32_t count_ = 0;
  std::atomic<std::uint32_t> next_{0};
  std::exception_ptr error_;
  const bool shares_all_;
  // The caller's: whether it begins a round without the others, and how many short rounds they have shared
  // since a long one.
  bool alone_;
  std::uint32_t short_rounds_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace tpsim::rank
