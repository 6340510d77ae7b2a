// Prices that never fall as an operator's work grows.
//
// Measured kernels do fall at places (a library changes its tile, or the call before was a slow one), and
// corrections follow them. A scheduler that asks what one more token costs must not be told "less than
// nothing": at the points of a correction's axis prices are the rising ones that are nearest (isotonic
// regression: where some fall, they share their mean), and between two points they stay between these.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tpsim::rank {

class MonotonePrice {
 public:
  // No points: every price is left as it is.
  MonotonePrice() = default;
  // `points`: sizes, ascending. `price`: seconds of a size.
  template <typename Price>
  MonotonePrice(std::span<const double> points, const Price& price) : points_(points.begin(), points.end()) {
    // Pools of neighbours whose prices fell, each with its mean and its number of points.
    std::vector<std::pair<double, double>> pools;
    for (const double point : points_) {
      pools.emplace_back(price(point), 1);
      while (pools.size() > 1 && pools[pools.size() - 2].first > pools.back().first) {
        const auto [seconds, count] = pools.back();
        pools.pop_back();
        auto& [mean, held] = pools.back();
        mean = (mean * held + seconds * count) / (held + count);
        held += count;
      }
    }
    for (const auto& [mean, held] : pools) least_.insert(least_.end(), static_cast<std::size_t>(held), mean);
  }

  // Seconds of `size`, whose own price is `seconds`.
  double operator()(double size, double seconds) const {
    const auto above =
        static_cast<std::size_t>(std::upper_bound(points_.begin(), points_.end(), size) - points_.begin());
    if (above < points_.size()) seconds = std::min(seconds, least_[above]);
    return above > 0 ? std::max(seconds, least_[above - 1]) : seconds;
  }

 private:
  std::vector<double> points_;
  std::vector<double> least_;  // seconds at each of them
};

// One for each shape of an operator, made when the shape is first priced.
class MonotonePrices {
 public:
  using Shape = std::array<std::uint64_t, 6>;  // whatever tells shapes apart

  template <typename Price>
  const MonotonePrice& of(const Shape& shape, std::span<const double> points, const Price& price) {
    const auto found = prices_.find(shape);
    if (found != prices_.end()) return found->second;
    return prices_.emplace(shape, MonotonePrice(points, price)).first->second;
  }

 private:
  struct Hash {
    std::size_t operator()(const Shape& shape) const {
      std::size_t sum = 0;
      for (const std::uint64_t value : shape)
        sum = (sum ^ value) * 0x9e3779b97f4a7c15U + (sum >> 29U);  // Knuth's multiplier
      return sum;
    }
  };
  std::unordered_map<Shape, MonotonePrice, Hash> prices_;
};

}  // namespace tpsim::rank
