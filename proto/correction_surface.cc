#include "proto/correction_surface.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace tpsim {

double octaves(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // exact, in [0.5, 1)
  return exponent - 1 + (2 * mantissa - 1);
}

GridPosition grid_position(std::span<const double> points, double position) {
  if (points.size() < 2 || position <= points.front()) return {0, 0};
  if (position >= points.back()) return {points.size() - 2, 1};
  std::size_t below = 0;
  while (points[below + 1] < position) ++below;
  return {below, (position - points[below]) / (points[below + 1] - points[below])};
}

CorrectionSurface::CorrectionSurface(const proto::CorrectionSurface& surface,
                                     std::span<const std::string_view> features) {
  if (static_cast<std::size_t>(surface.axes_size()) > kMostAxes)
    throw std::invalid_argument("a correction has more axes than are taken");
  std::size_t count = 1;
  for (const auto& axis : surface.axes()) {
    const auto found = std::find(features.begin(), features.end(), axis.feature());
    if (found == features.end()) throw std::invalid_argument("no feature is called " + axis.feature());
    Axis own{static_cast<std::size_t>(found - features.begin()), {}, 0};
    for (const double point : axis.points()) {
      if (!(point > 0)) throw std::invalid_argument(axis.feature() + ": a point is not above 0");
      own.points.push_back(octaves(point));
      if (own.points.size() > 1 && own.points.back() <= own.points[own.points.size() - 2])
        throw std::invalid_argument(axis.feature() + ": points do not ascend");
    }
    if (own.points.empty()) throw std::invalid_argument(axis.feature() + ": an axis without points");
    count *= own.points.size();
    axes_.push_back(std::move(own));
  }
  if (static_cast<std::size_t>(surface.factors_size()) != count)
    throw std::invalid_argument("a correction needs a factor for each of its " + std::to_string(count) +
                                " points");
  std::size_t stride = 1;
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    axis->stride = stride;
    stride *= axis->points.size();
  }
  factors_.reserve(count);
  for (const std::uint32_t thousandths : surface.factors()) factors_.push_back(thousandths / 1000.0);
}

double CorrectionSurface::factor(std::span<const double> features) const {
  // Corners of the cell, each with its weight; an axis doubles them.
  std::array<std::size_t, 1U << kMostAxes> corner;
  std::array<double, 1U << kMostAxes> weight;
  corner[0] = 0;
  weight[0] = 1;
  std::size_t corners = 1;
  for (const Axis& axis : axes_) {
    const double value = features[axis.feature];
    if (value != axis.value) {
      axis.value = value;
      axis.at = grid_position(axis.points, value > 0 ? octaves(value) : axis.points.front());
    }
    const GridPosition at = axis.at;
    if (at.share <= 0 || at.share >= 1) {  // on a point, as most shapes of a model are: no other one counts
      const std::size_t point = at.below + (at.share >= 1 ? 1 : 0);
      for (std::size_t i = 0; i < corners; ++i) corner[i] += point * axis.stride;
      continue;
    }
    for (std::size_t i = 0; i < corners; ++i) {
      corner[i] += at.below * axis.stride;
      corner[corners + i] = corner[i] + axis.stride;
      weight[corners + i] = weight[i] * at.share;
      weight[i] *= 1 - at.share;
    }
    corners *= 2;
  }
  double sum = 0;
  for (std::size_t i = 0; i < corners; ++i) sum += weight[i] * factors_[corner[i]];
  return sum;
}

Corrections::Corrections(const proto::OperatorEfficiency* entry, std::span<const std::string_view> features) {
  if (entry == nullptr) return;
  for (const proto::CorrectionSurface& surface : entry->corrections())
    surfaces_.emplace_back(surface, features);
}

}  // namespace tpsim
