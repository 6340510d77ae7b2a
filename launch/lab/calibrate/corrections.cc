#include "launch/lab/calibrate/corrections.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "proto/correction_surface.h"

namespace tpsim::calibrate {
namespace {

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
