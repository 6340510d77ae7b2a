#include "launch/lab/calibrate/surface_fit.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

struct Grid {
  struct Axis {
    std::size_t feature;
    std::vector<double> points;  // octaves
    std::size_t stride;
  };
  std::vector<Axis> axes;
  std::size_t size = 1;
};

Grid grid_of(std::span<const std::string_view> features, std::span<const SurfaceAxis> axes) {
  Grid grid;
  for (const SurfaceAxis& axis : axes) {
    const auto found = std::find(features.begin(), features.end(), axis.feature);
    if (found == features.end()) throw std::invalid_argument("no feature is called " + axis.feature);
    Grid::Axis own{static_cast<std::size_t>(found - features.begin()), {}, 0};
    for (const double point : axis.points) own.points.push_back(octaves(point));
    grid.axes.push_back(std::move(own));
  }
  for (auto axis = grid.axes.rbegin(); axis != grid.axes.rend(); ++axis) {
    axis->stride = grid.size;
    grid.size *= axis->points.size();
  }
  return grid;
}

// Corners of the cell that a row lies in, and their shares; as CorrectionSurface::factor() has them.
std::vector<std::pair<std::size_t, double>> corners_of(const Grid& grid, const SurfaceRow& row) {
  std::vector<std::pair<std::size_t, double>> corners = {{0, 1.0}};
  for (const Grid::Axis& axis : grid.axes) {
    const GridPosition at = grid_position(axis.points, octaves(row.features[axis.feature]));
    const std::size_t count = corners.size();
    for (std::size_t i = 0; i < count; ++i) {
      corners[i].first += at.below * axis.stride;
      if (at.share <= 0) continue;
      corners.emplace_back(corners[i].first + axis.stride, corners[i].second * at.share);
      corners[i].second *= 1 - at.share;
    }
  }
  return corners;
}

// Squared differences between neighbours, along each axis; nearer ones are held together more.
Eigen::MatrixXd differences(const Grid& grid) {
  const auto size = static_cast<Eigen::Index>(grid.size);
  Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(size, size);
  const auto add = [&](std::size_t from, std::size_t to, double weight) {
    const auto a = static_cast<Eigen::Index>(from);
    const auto b = static_cast<Eigen::Index>(to);
    matrix(a, a) += weight;
    matrix(b, b) += weight;
    matrix(a, b) -= weight;
    matrix(b, a) -= weight;
  };
  for (const Grid::Axis& axis : grid.axes) {
    const double steps = static_cast<double>(axis.points.size()) - 1;
    for (std::size_t at = 0; at < grid.size; ++at) {
      const std::size_t i = at / axis.stride % axis.points.size();
      if (i + 1 == axis.points.size()) continue;
      const double width = axis.points[i + 1] - axis.points[i];
      const double mean = (axis.points.back() - axis.points.front()) / steps;
      add(at, at + axis.stride, std::clamp(mean / width, 0.3, 3.0));
    }
  }
  return matrix;
}

}  // namespace

SurfaceAxis axis_of(std::span<const SurfaceRow> rows, std::span<const std::string_view> features,
                    std::string_view feature, std::size_t most) {
  const auto found = std::find(features.begin(), features.end(), feature);
  if (found == features.end()) throw std::invalid_argument("no feature is called " + std::string(feature));
  const auto index = static_cast<std::size_t>(found - features.begin());
  std::set<double> distinct;
  for (const SurfaceRow& row : rows) distinct.insert(row.features[index]);
  const std::vector<double> all(distinct.begin(), distinct.end());
  if (all.size() <= most || most < 2) return {std::string(feature), all};
  SurfaceAxis axis{std::string(feature), {}};
  for (std::size_t i = 0; i < most; ++i) axis.points.push_back(all[i * (all.size() - 1) / (most - 1)]);
  return axis;
}

proto::CorrectionSurface fit_surface(std::span<const SurfaceRow> rows,
                                     std::span<const std::string_view> features,
                                     std::span<const SurfaceAxis> axes, const SurfaceOptions& options) {
  if (rows.empty()) throw std::invalid_argument("a surface needs rows");
  const Grid grid = grid_of(features, axes);
  const auto size = static_cast<Eigen::Index>(grid.size);
  std::vector<std::vector<std::pair<std::size_t, double>>> corners;
  corners.reserve(rows.size());
  double weights = 0;
  for (const SurfaceRow& row : rows) {
    corners.push_back(corners_of(grid, row));
    weights += row.weight;
  }
  // A point's share of the rows, were they spread evenly, is what a difference of `smoothness` 1 stands
  // against.
  const double per_point = weights / static_cast<double>(grid.size);
  Eigen::MatrixXd held = differences(grid) * (options.smoothness * per_point);
  held.diagonal().array() += 1e-6 * per_point;

  Eigen::VectorXd factors = Eigen::VectorXd::Ones(size);
  // A row's deviation counts at least so much: below it reweighting would chase single rows.
  constexpr double kLeastDeviation = 0.01;
  for (int round = 0; round < 25; ++round) {
    Eigen::MatrixXd matrix = held;  // a few hundred points: dense is faster than sparse
    Eigen::VectorXd wanted = Eigen::VectorXd::Constant(size, 1e-6 * per_point);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const double ratio = rows[r].ratio;
      double now = 0;
      for (const auto& [at, share] : corners[r]) now += share * factors[static_cast<Eigen::Index>(at)];
      // Of log-like size in both directions: half as long and twice as long are equally wrong.
      const double deviation = std::max(now / ratio, ratio / now) - 1;
      const double weight = rows[r].weight / std::max(deviation, kLeastDeviation);
      const double scale = 1 / std::max(now, ratio);
      for (const auto& [at, share] : corners[r]) {
        const auto i = static_cast<Eigen::Index>(at);
        wanted[i] += weight * share * ratio * scale * scale;
        for (const auto& [other, other_share] : corners[r])
          matrix(static_cast<Eigen::Index>(other), i) += weight * share * other_share * scale * scale;
      }
    }
    const Eigen::LDLT<Eigen::MatrixXd> solver(matrix);
    if (solver.info() != Eigen::Success) throw std::invalid_argument("the rows do not determine a surface");
    const Eigen::VectorXd next = solver.solve(wanted).cwiseMax(options.least).cwiseMin(options.most);
    const double moved = (next - factors).cwiseAbs().maxCoeff();
    factors = next;
    if (moved < 2e-4) break;
  }

  proto::CorrectionSurface surface;
  for (const SurfaceAxis& axis : axes) {
    auto& out = *surface.add_axes();
    out.set_feature(axis.feature);
    out.mutable_points()->Add(axis.points.begin(), axis.points.end());
  }
  for (const double factor : factors)
    surface.add_factors(static_cast<std::uint32_t>(std::max(1L, std::lround(factor * 1000))));
  return surface;
}

}  // namespace tpsim::calibrate
