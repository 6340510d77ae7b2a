// The clock of a live server.
#pragma once

#include <chrono>

namespace tpsim::launch {

// The replica's clock on the wall: seconds since the server began, that pass `speedup` times as fast.
class WallClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit WallClock(double speedup = 1, Time start = std::chrono::steady_clock::now())
      : speedup_(speedup), start_(start) {}

  double speedup() const { return speedup_; }
  double seconds_at(Time time) const {
    return std::chrono::duration<double>(time - start_).count() * speedup_;
  }
  double now() const { return seconds_at(std::chrono::steady_clock::now()); }
  // When the wall is there. REQUIRES: `seconds` lies within centuries.
  Time time_at(double seconds) const {
    return start_ +
           std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds / speedup_));
  }

 private:
  double speedup_;
  Time start_;
};

}  // namespace tpsim::launch
