#include "rank/linear/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/base/stop_flag.h"

namespace tpsim::rank {
namespace {

// A layer's operations follow each other within microseconds, and waking a sleeper takes tens of them: looks
// for so long before it sleeps. Threads of a pool have cores of their own (see the constructor).
constexpr std::chrono::microseconds kLook{50};

template <typename Done>
void look(Done done) {
  const auto end = std::chrono::steady_clock::now() + kLook;
  while (!done() && std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
  }
}

}  // namespace

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
}

ThreadPool::ThreadPool(std::uint32_t threads, std::uint32_t processes_on_host) {
  if (threads == 0) threads = std::max(1U, usable_cores() / std::max(1U, processes_on_host));
  for (std::uint32_t i = 1; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::take_part(std::uint32_t thread) {
  try {
    while (true) {
      const std::uint32_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= count_) return;
      StopFlag::throw_if_requested();
      (*work_)(i, thread);
    }
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::serve(std::uint32_t thread) {
  std::uint64_t seen = 0;
  while (true) {
    look([&] { return round_.load(std::memory_order_acquire) != seen; });
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
    }
    take_part(thread);
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) end_.notify_one();
  }
}

void ThreadPool::parallel_for(std::uint32_t count, const Work& work) {
  if (threads_.empty() || count <= 1) {
    for (std::uint32_t i = 0; i < count; ++i) {
      StopFlag::throw_if_requested();
      work(i, 0);
    }
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    working_ = static_cast<std::uint32_t>(threads_.size());
    ++round_;
  }
  begin_.notify_all();
  take_part(0);
  look([&] { return working_.load(std::memory_order_acquire) == 0; });
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return working_ == 0; });
  work_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace tpsim::rank
