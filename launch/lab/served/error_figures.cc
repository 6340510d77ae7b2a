#include "launch/lab/served/error_figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tpsim::launch {
namespace {

// Between the two values around the place where they differ.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

proto::ErrorFigures error_figures(const std::vector<double>& ratios) {
  proto::ErrorFigures out;
  if (ratios.empty()) return out;
  std::vector<double> sorted = ratios;
  std::sort(sorted.begin(), sorted.end());
  out.set_median_ratio(quantile(sorted, 0.5));
  double sum = 0;
  for (double& ratio : sorted) {
    ratio = std::abs(ratio - 1);
    sum += ratio;
  }
  std::sort(sorted.begin(), sorted.end());
  out.set_count(sorted.size());
  out.set_mean(sum / static_cast<double>(sorted.size()));
  out.set_median(quantile(sorted, 0.5));
  out.set_p90(quantile(sorted, 0.9));
  return out;
}

}  // namespace tpsim::launch
