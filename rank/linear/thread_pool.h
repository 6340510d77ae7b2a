// The threads that one process computes with. Eight processes on two cores must not spin against each other:
// idle threads sleep.
#pragma once

#include <cstdint>
#include <functional>

namespace tpsim::rank {

class ThreadPool {
 public:
  // `threads` in all, the caller included; 0: the cores that this process may use divided by
  // `processes_on_host`, at least 1.
  explicit ThreadPool(std::uint32_t threads = 0, std::uint32_t processes_on_host = 1);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  std::uint32_t size() const;
  // Calls work(i, thread) for i in [0, count), thread in [0, size()), and returns when all are done. An
  // exception of `work` is thrown here. Not reentrant.
  void parallel_for(std::uint32_t count, const std::function<void(std::uint32_t, std::uint32_t)>& work);
};

}  // namespace tpsim::rank
