// When each request of a workload is sent.
//
// Open loop: at its time. Closed loop (--max-concurrency): at its time, but not before one of the
// max_concurrency places is free; places are given in order of arrival, as by the semaphore of SGLang's
// serving benchmark, which also starts a request's clock when it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "scheduler/config.h"
#include "scheduler/workload/workload.h"

namespace tpsim::scheduler {

class LoadGenerator {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  LoadGenerator(const LoadConfig& config, const Workload& workload, std::uint64_t seed);

  std::size_t size() const { return times_.size(); }
  bool exhausted() const { return next_ == times_.size(); }
  // Time at which the next request is sent; kNever where none is left or no place is free.
  double next_time() const;
  // REQUIRES: next_time() <= now. Returns the index of the request and its time of sending.
  struct Sent {
    std::size_t index;
    double time;
  };
  Sent pop();
  // A request came back at `now`: its place is free.
  void on_finished(double now);

 private:
  std::vector<double> times_;  // seconds, ascending
  std::size_t next_ = 0;
  std::uint32_t places_;  // 0 = no limit
  std::size_t in_flight_ = 0;
  double last_free_ = 0;  // when a place became free last
};

}  // namespace tpsim::scheduler
