#include "scheduler/elastic/autoscaler.h"

#include <algorithm>
#include <cmath>

namespace tpsim::scheduler {

std::uint32_t Autoscaler::recommended(std::uint32_t ready, std::uint32_t starting, double sum) const {
  const std::uint32_t current = ready + starting;
  double ratio = ready > 0 ? sum / (config_.target * ready) : 1;
  if (starting > 0 && ready > 0) {
    const bool more = ratio > 1;
    ratio = (sum / config_.target + (more ? 0 : starting)) / current;
    if (more != (ratio > 1)) return current;
  }
  if (std::abs(ratio - 1) <= config_.tolerance) return current;
  const double wanted = std::ceil(current * ratio);
  // Doubled, or four more, at a time.
  const double most = std::min<double>(config_.most, std::max(2 * current, current + 4));
  return static_cast<std::uint32_t>(
      std::clamp<double>(wanted, config_.least, std::max<double>(most, config_.least)));
}

std::uint32_t Autoscaler::desired(double now, std::uint32_t ready, std::uint32_t starting, double sum) {
  const std::uint32_t current = ready + starting;
  const std::uint32_t wanted = recommended(ready, starting, sum);
  if (recent_.empty()) recent_.push_back({now, current});  // as its controller begins
  while (!recent_.empty() && recent_.front().time < now - config_.scale_down_window) recent_.pop_front();
  recent_.push_back({now, wanted});
  if (wanted >= current) return wanted;
  const std::uint32_t largest = std::ranges::max_element(recent_, {}, &Recommendation::replicas)->replicas;
  return std::min(current, largest);
}

}  // namespace tpsim::scheduler
