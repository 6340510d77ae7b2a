#include "launch/parallel_loop.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tpsim::launch {

void parallel_loop(std::size_t count, std::uint32_t threads,
                   const std::function<void(std::size_t index, const std::atomic<bool>& stop)>& work,
                   const std::function<void(std::size_t done)>& on_tick) {
  constexpr auto kTick = std::chrono::milliseconds(50);
  std::atomic<std::size_t> next = 0, done = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t running = std::min<std::size_t>(threads, count);
  std::exception_ptr failure, given_up;
  const auto share = [&] {
    try {
      for (std::size_t i = next++; i < count && !stop; i = next++) {
        work(i, stop);
        ++done;
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
      stop = true;
    }
    const std::scoped_lock lock(mutex);
    --running;
    ended.notify_one();
  };
  std::vector<std::thread> workers;
  for (std::size_t t = running; t > 0; --t) workers.emplace_back(share);
  {
    std::unique_lock lock(mutex);
    while (!ended.wait_for(lock, kTick, [&] { return running == 0; })) {
      try {
        on_tick(done);
      } catch (...) {
        given_up = std::current_exception();
        stop = true;
      }
    }
  }
  for (std::thread& worker : workers) worker.join();
  if (given_up) std::rethrow_exception(given_up);
  if (failure) std::rethrow_exception(failure);
  on_tick(done);
}

}  // namespace tpsim::launch
