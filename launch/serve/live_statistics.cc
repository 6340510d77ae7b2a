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

std::span<const double> ttft_edges() {
  static constexpr std::array<double, 18> kEdges = {0.1, 0.2, 0.4, 0.6, 0.8, 1,  2,   4,   6,
                                                    8,   10,  20,  40,  60,  80, 100, 200, 400};
  return kEdges;
}

std::span<const double> inter_token_edges() {
  static constexpr std::array<double, 23> kEdges = {0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025,
                                                    0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200, 0.400,
                                                    0.600, 0.800, 1,     2,     4,     6,     8};
  return kEdges;
}

std::span<const double> e2e_edges() {
  static constexpr std::array<double, 22> kEdges = {0.1, 0.2, 0.4, 0.6, 0.8, 1,   2,   4,   6,    8,    10,
                                                    20,  40,  60,  80,  100, 200, 400, 600, 1200, 1800, 2400};
  return kEdges;
}

std::span<const double> queue_time_edges() {
  static constexpr std::array<double, 40> kEdges = {
      0,   0.001, 0.005, 0.010, 0.050, 0.100, 0.200, 0.500, 1,    2,    3,    4,   5,   10,
      15,  20,    30,    40,    50,    60,    70,    80,    90,   100,  200,  300, 400, 500,
      600, 700,   800,   900,   1000,  1200,  1400,  1600,  1800, 2000, 2500, 3000};
  return kEdges;
}

std::span<const double> token_count_edges() {
  static constexpr std::array<double, 35> kEdges = {
      100,   300,   500,   700,   1000,  1500,  2000,  3000,  4000,  5000,  6000,  7000,
      8000,  9000,  10000, 12500, 15000, 17500, 20000, 22500, 25000, 27500, 30000, 35000,
      40000, 60000, 80000, 1e5,   2e5,   3e5,   4e5,   6e5,   8e5,   1e6,   1.1e6};
  return kEdges;
}

std::span<const double> lateness_edges() {
  static constexpr std::array<double, 12> kEdges = {2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3,
                                                    2e-3, 5e-3, 1e-2, 5e-2, 0.2,  1};
  return kEdges;
}

}  // namespace tpsim::launch
