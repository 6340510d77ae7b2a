#include "launch/lab/calibrate/surface_fit.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

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

// Of `points`, those that lie among the values and the next ones outside.
std::vector<double> near_values(std::span<const double> points, double least, double most) {
  std::vector<double> near;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool above = i + 1 < points.size() && points[i + 1] <= least;
    const bool below = i > 0 && points[i - 1] >= most;
    if (!above && !below) near.push_back(points[i]);
  }
  return near;
}

std::vector<SurfaceAxis> axes_of(std::span<const SurfaceRow> rows, std::span<const std::string_view> features,
                                 const GridWish& wish) {
  std::vector<SurfaceAxis> axes;
  for (const AxisWish& want : wish) {
    SurfaceAxis axis = axis_of(rows, features, want.feature, want.points.empty() ? want.most : rows.size());
    // No value at all (no window, no prefix) is a point below the others.
    if (!axis.points.empty() && axis.points.front() <= 0) {
      std::erase_if(axis.points, [](double point) { return point <= 1; });
      axis.points.insert(axis.points.begin(), 1);
    }
    if (!want.points.empty() && !axis.points.empty())
      axis.points = near_values(want.points, axis.points.front(), axis.points.back());
    if (axis.points.size() > 1) axes.push_back(std::move(axis));
  }
  return axes;
}

// Of the features, so that repeated rows fall together.
std::uint64_t fold_of(const SurfaceRow& row) {
  std::uint64_t hash = 0x243F6A8885A308D3ULL;
  for (const double value : row.features) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 31;
  }
  return hash >> 7 & 3;
}

// A row that a surface did not see: what it left of measured / modeled, and how much the row counts.
struct Unseen {
  double ratio, weight;
};

// Small for a surface that serves the median row and nine in ten, by weight.
double score(std::span<const Unseen> rows) {
  std::vector<std::pair<double, double>> errors;
  double all = 0;
  for (const Unseen& row : rows) {
    errors.emplace_back(std::abs(1 / row.ratio - 1), row.weight);
    all += row.weight;
  }
  std::sort(errors.begin(), errors.end());
  double below = 0;
  double median = -1;
  for (const auto& [error, weight] : errors) {
    below += weight;
    if (median < 0 && below >= 0.5 * all) median = error;
    if (below >= 0.9 * all) return median + error / 3;
  }
  return 0;
}

// Errors of the rows of each fold under a surface that the other rows made.
double score_unseen(std::span<const SurfaceRow> rows, std::span<const std::string_view> features,
                    std::span<const SurfaceAxis> axes, const SurfaceOptions& surface_options,
                    std::size_t folds) {
  std::vector<Unseen> left;
  for (std::uint64_t fold = 0; fold < folds; ++fold) {
    std::vector<SurfaceRow> others;
    for (const SurfaceRow& row : rows)
      if (fold_of(row) != fold) others.push_back(row);
    if (others.empty()) continue;
    const CorrectionSurface surface(fit_surface(others, features, axes, surface_options), features);
    for (const SurfaceRow& row : rows)
      if (fold_of(row) == fold) left.push_back({row.ratio / surface.factor(row.features), row.weight});
  }
  return score(left);
}

// Every so many, by their order; heavy ones, of a source with few rows, all.
std::vector<SurfaceRow> some_of(std::span<const SurfaceRow> rows, std::size_t most) {
  const std::size_t every = (rows.size() + most - 1) / most;
  double mean = 0;
  for (const SurfaceRow& row : rows) mean += row.weight / static_cast<double>(rows.size());
  std::vector<SurfaceRow> some;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool heavy = rows[i].weight > 2 * mean;
    if (!heavy && i % every != 0) continue;
    some.push_back(rows[i]);
    if (!heavy) some.back().weight *= static_cast<double>(every);
  }
  return some;
}

std::optional<proto::CorrectionSurface> choose_correction(std::span<const SurfaceRow> rows,
                                                          std::span<const std::string_view> features,
                                                          std::span<const GridWish> grids,
                                                          const CorrectionOptions& options) {
  constexpr std::size_t kFewest = 12;  // rows that say anything
  if (rows.size() < kFewest) return std::nullopt;
  const std::vector<SurfaceRow> some = some_of(rows, options.most_rows);
  std::vector<Unseen> alone;
  for (const SurfaceRow& row : some)
    if (fold_of(row) < options.folds) alone.push_back({row.ratio, row.weight});
  double best = score(alone) * options.better;
  std::vector<SurfaceAxis> chosen;
  SurfaceOptions chosen_options;
  for (const GridWish& grid : grids) {
    const std::vector<SurfaceAxis> axes = axes_of(some, features, grid);
    std::size_t factors = 1;
    for (const SurfaceAxis& axis : axes) factors *= axis.points.size();
    if (axes.empty() || factors > rows.size()) continue;
    for (const double smoothness : options.smoothness) {
      const SurfaceOptions surface_options{smoothness, options.least, options.most};
      const double now = score_unseen(some, features, axes, surface_options, options.folds);
      if (now >= best) continue;
      best = now;
      chosen = axes;
      chosen_options = surface_options;
    }
  }
  if (chosen.empty()) return std::nullopt;
  return fit_surface(rows, features, chosen, chosen_options);
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

void add_corrections(std::vector<SurfaceRow> rows, std::span<const std::string_view> features,
                     std::span<const std::vector<GridWish>> stages, const CorrectionOptions& options,
                     proto::OperatorEfficiency& entry) {
  for (const std::vector<GridWish>& grids : stages) {
    auto surface = choose_correction(rows, features, grids, options);
    if (!surface) continue;
    const CorrectionSurface factors(*surface, features);
    for (SurfaceRow& row : rows) row.ratio /= factors.factor(row.features);
    *entry.add_corrections() = *std::move(surface);
  }
}

}  // namespace tpsim::calibrate
