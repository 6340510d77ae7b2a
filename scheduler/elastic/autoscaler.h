// How many replicas there should be, as Kubernetes' horizontal pod autoscaler decides.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "scheduler/elastic/config.h"

namespace tpsim::scheduler {

// Requests that ended lately, each with the largest share that it needed of a time that it may need: 1 is
// just within its service levels.
class AnswerWindow {
 public:
  // An answer that ended at `time`, seconds.
  void add(double time, double needed) { answers_.push_back({time, needed}); }
  // What `share` of the answers that ended in the `window` before `now` needed at most; negative: none ended.
  // Those that ended before are forgotten.
  double needed_by(double share, double window, double now);

 private:
  struct Answer {
    double time = 0, needed = 0;
  };
  std::vector<Answer> answers_;
  std::vector<double> sorted_;  // scratch
};

class Autoscaler {
 public:
  explicit Autoscaler(const AutoscaleConfig& config) : config_(config) {}

  // Replicas wanted from `now` on, where `ready` serve, whose metrics add up to `sum`, and `starting` are on
  // their way: those count as idle where more seem to be needed, and as on target where fewer do.
  // REQUIRES: ready + starting > 0; `now` grows from call to call.
  std::uint32_t desired(double now, std::uint32_t ready, std::uint32_t starting, double sum);

 private:
  struct Recommendation {
    double time = 0;
    std::uint32_t replicas = 0;
  };
  std::uint32_t recommended(std::uint32_t ready, std::uint32_t starting, double sum) const;

  const AutoscaleConfig config_;
  std::deque<Recommendation> recent_;  // within the window
};

}  // namespace tpsim::scheduler
