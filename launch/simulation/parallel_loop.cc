#include "launch/simulation/parallel_loop.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <vector>

namespace tpsim::launch {

void parallel_loop(std::size_t count, std::uint32_t threads,
                   const std::function<void(std::size_t index, const std::atomic<bool>& stop)>& work,
                   const std::function<void(std::size_t done)>& on_tick) {
  constexpr auto kTick = std::chrono::milliseconds(50);
  std::atomic<std::size_t> next = 0, done = 0;
  std::atomic<bool> stop = false;
  const auto share = [&] {
    try {
      for (std::size_t i = next++; i < count && !stop; i = next++) {
        work(i, stop);
        ++done;
      }
    } catch (...) {
      stop = true;
      throw;
    }
  };
  std::vector<std::future<void>> shares;
  for (std::size_t t = std::min<std::size_t>(threads, count); t > 0; --t)
    shares.push_back(std::async(std::launch::async, share));
  std::exception_ptr given_up;
  for (const std::future<void>& one : shares) {
    while (one.wait_for(kTick) != std::future_status::ready) {
      try {
        on_tick(done);
      } catch (...) {
        given_up = std::current_exception();
        stop = true;
      }
    }
  }
  if (given_up) std::rethrow_exception(given_up);
  for (std::future<void>& one : shares) one.get();
  on_tick(done);
}

}  // namespace tpsim::launch
