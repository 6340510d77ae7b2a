#include "scheduler/elastic/autoscaler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tpsim::scheduler {

double AnswerWindow::needed_by(double share, double window, double now) {
  std::erase_if(answers_, [=](const Answer& answer) { return answer.time <= now - window; });
  sorted_.clear();
  for (const Answer& answer : answers_)
    if (answer.time <= now) sorted_.push_back(answer.needed);
  if (sorted_.empty()) return -1;
  const double rank = std::ceil(share * static_cast<double>(sorted_.size()));
  const auto at = sorted_.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::ranges::nth_element(sorted_, at);
  return *at;
}

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
