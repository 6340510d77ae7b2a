#include "launch/serve/live_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tpsim::launch {
namespace {

// Bins of percentiles: from a microsecond to weeks, or a million tokens.
constexpr double kFinest = 1e-6;
constexpr double kGrowth = 1.02;
constexpr std::size_t kBins = 1500;

std::size_t bin_of(double value) {
  if (!(value > kFinest)) return 0;
  const double bin = std::ceil(std::log(value / kFinest) / std::log(kGrowth));
  return static_cast<std::size_t>(std::min(bin, static_cast<double>(kBins - 1)));
}

}  // namespace

void LiveHistogram::observe(double value, std::uint64_t times) {
  if (fine.empty()) fine.resize(kBins);
  fine[bin_of(value)] += times;
  const auto bucket = std::lower_bound(edges.begin(), edges.end(), value) - edges.begin();
  counts[static_cast<std::size_t>(bucket)] += times;
  sum += value * static_cast<double>(times);
}

std::uint64_t LiveHistogram::count() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

double LiveHistogram::percentile(double q) const {
  const auto total = static_cast<double>(count());
  if (total == 0) return 0;
  const double wanted = q / 100 * total;
  double below = 0;
  for (std::size_t bin = 0; bin < fine.size(); ++bin) {
    below += static_cast<double>(fine[bin]);
    // Of a bin its geometric middle; the first is that of nothing.
    if (below > 0 && below >= wanted)
      return bin == 0 ? 0 : kFinest * std::pow(kGrowth, static_cast<double>(bin) - 0.5);
  }
  return 0;
}

}  // namespace tpsim::launch
