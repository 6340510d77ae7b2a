// Waiting for a message without taking the core from the process that will send it.
#pragma once

#include <sched.h>

#include <cstdint>
#include <ctime>

namespace tpsim::rank {

// Call wait() each time there was nothing to do and reset() when there was: it yields first, then sleeps
// longer and longer. With more processes than cores a sleeping one costs nothing; an answer is noticed at
// most kLongestSleepNs late.
class IdleBackoff {
 public:
  void reset() { rounds_ = 0; }

  void wait() {
    if (rounds_ < kYields) {
      ++rounds_;
      sched_yield();
      return;
    }
    const std::uint32_t doublings = rounds_ - kYields;
    timespec pause{0, kShortestSleepNs << doublings};
    if (pause.tv_nsec < kLongestSleepNs) ++rounds_;
    nanosleep(&pause, nullptr);
  }

 private:
  static constexpr std::uint32_t kYields = 20;
  static constexpr long kShortestSleepNs = 20'000;
  static constexpr long kLongestSleepNs = 320'000;
  std::uint32_t rounds_ = 0;
};

}  // namespace tpsim::rank
