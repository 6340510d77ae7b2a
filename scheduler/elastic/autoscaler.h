// How many replicas there should be, as Kubernetes' horizontal pod autoscaler decides.
#pragma once

#include <cstdint>
#include <deque>

#include "scheduler/elastic/config.h"

namespace tpsim::scheduler {

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
