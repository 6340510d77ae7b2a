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

// What the caller does itself before it wakes the others: as long as they take to be awake.
constexpr std::chrono::microseconds kAlone{50};
// Rounds of less work than kShort, so many in a row, are those of a small model: its threads would look for
// most of their time, which on a machine that others use is taken from these, and from the thread that has
// the work.
constexpr std::chrono::microseconds kShort{20};
constexpr std::uint32_t kShortRounds = 8;

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

ThreadPool::ThreadPool(std::uint32_t threads, std::uint32_t processes_on_host)
    : shares_all_(threads != 0), alone_(!shares_all_) {
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

std::uint32_t ThreadPool::begin_alone(std::uint32_t count, const Work& work) {
  const auto end = std::chrono::steady_clock::now() + kAlone;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i > 0 && std::chrono::steady_clock::now() >= end) return i;
    StopFlag::throw_if_requested();
    work(i, 0);
  }
  return count;
}

void ThreadPool::note_round(std::chrono::steady_clock::duration whole) {
  short_rounds_ = whole < kShort ? short_rounds_ + 1 : 0;
  alone_ = !shares_all_ && short_rounds_ >= kShortRounds;
}

std::uint32_t ThreadPool::take_part(std::uint32_t thread) {
  std::uint32_t done = 0;
  try {
    for (;; ++done) {
      const std::uint32_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= count_) break;
      StopFlag::throw_if_requested();
      (*work_)(i, thread);
    }
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  return done;
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
  std::uint32_t begun = 0;
  if (alone_) {
    begun = begin_alone(count, work);
    if (begun == count) return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    next_.store(begun, std::memory_order_relaxed);
    working_ = static_cast<std::uint32_t>(threads_.size());
    ++round_;
  }
  begin_.notify_all();
  const auto begin = std::chrono::steady_clock::now();
  const std::uint32_t done = take_part(0);
  const auto took = std::chrono::steady_clock::now() - begin;
  // How long all of it would have taken this thread, if it took any part.
  note_round(done == 0 || begun > 0 ? kAlone : took / done * count);
  look([&] { return working_.load(std::memory_order_acquire) == 0; });
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return working_ == 0; });
  work_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace tpsim::rank
