// Waiting for a message without taking the core from the process that will send it.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <ctime>

namespace tpsim::rank {

// Seconds; goes on steadily, from no day in particular.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Call wait() each time there was nothing to do and reset() when there was: it yields first, then sleeps
// longer and longer. With more processes than cores a sleeping one costs nothing; an answer is noticed at
// most kLongestSleepNs late.
//
// In a synchronous run each side waits for the other at every step, and two sleepers would keep each other
// asleep (1 ms per step was measured, against 10 us when yielding): there, yield for about a millisecond.
class IdleBackoff {
 public:
  explicit IdleBackoff(bool synchronous) : yields_(synchronous ? 1000 : 20) {}

  void reset() { rounds_ = 0; }

  void wait() {
    if (rounds_ < yields_) {
      ++rounds_;
      sched_yield();
      return;
    }
    const std::uint32_t doublings = rounds_ - yields_;
    timespec pause{0, kShortestSleepNs << doublings};
    if (pause.tv_nsec < kLongestSleepNs) ++rounds_;
    nanosleep(&pause, nullptr);
  }

 private:
  static constexpr long kShortestSleepNs = 20'000;
  static constexpr long kLongestSleepNs = 320'000;
  std::uint32_t yields_;
  std::uint32_t rounds_ = 0;
};

}  // namespace tpsim::rank
