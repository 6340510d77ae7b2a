// Which of many replicas is the next to do something.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/request_source.h"

namespace tpsim::scheduler {

// When each replica has something to do, and which is the first: the winner of a knockout, the lower number
// where two are equal. A change costs the logarithm of their number.
class DueTimes {
 public:
  // REQUIRES: replicas > 0.
  explicit DueTimes(std::size_t replicas)
      : leaves_(std::bit_ceil(replicas)), times_(leaves_, RequestSource::kNever), winners_(2 * leaves_) {
    for (std::uint32_t i = 0; i < leaves_; ++i) winners_[leaves_ + i] = i;
    for (std::size_t i = leaves_; i-- > 1;) winners_[i] = winners_[2 * i];
  }
  void set(std::uint32_t replica, double time) {
    times_[replica] = time;
    for (std::size_t i = (leaves_ + replica) / 2; i > 0; i /= 2) {
      const std::uint32_t left = winners_[2 * i], right = winners_[2 * i + 1];
      winners_[i] = times_[right] < times_[left] ? right : left;
    }
  }
  std::uint32_t first() const { return winners_[1]; }
  double time() const { return times_[first()]; }
  double time_of(std::uint32_t replica) const { return times_[replica]; }

 private:
  const std::size_t leaves_;
  std::vector<double> times_;
  std::vector<std::uint32_t> winners_;  // of each match, the final at 1; the replicas behind
};

}  // namespace tpsim::scheduler
