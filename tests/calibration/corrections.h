// Which corrections (proto/correction_surface.h) a class's rows support: grids and smoothness are chosen by
// rows that a fit to the others has not seen, four times a quarter of them; none where the formula alone does
// as well. Rows that the caller leaves out for its own errors take no part.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/calibrate/surface_fit.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibration {

// Features of a grid, with the most points that each axis may have.
using GridWish = std::vector<std::pair<std::string_view, std::size_t>>;

namespace corrections_detail {

inline std::vector<calibrate::SurfaceAxis> axes_of(std::span<const calibrate::SurfaceRow> rows,
                                                   std::span<const std::string_view> features,
                                                   const GridWish& wish) {
  std::vector<calibrate::SurfaceAxis> axes;
  for (const auto& [feature, most] : wish) {
    auto axis = calibrate::axis_of(rows, features, feature, most);
    if (axis.points.size() > 1) axes.push_back(std::move(axis));
  }
  return axes;
}

// Of the features, so that repeated rows fall together.
inline std::uint64_t fold_of(const calibrate::SurfaceRow& row) {
  std::uint64_t hash = 0x243F6A8885A308D3ULL;
  for (const double value : row.features) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 31;
  }
  return hash >> 7 & 3;
}

// Small for a surface that serves the median row and nine in ten, rows by their weight.
inline double score(std::span<const calibrate::SurfaceRow> rows, std::span<const double> ratios) {
  std::vector<std::pair<double, double>> errors;
  double all = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    errors.emplace_back(std::abs(1 / ratios[i] - 1), rows[i].weight);
    all += rows[i].weight;
  }
  std::sort(errors.begin(), errors.end());
  double below = 0, median = -1;
  for (const auto& [error, weight] : errors) {
    below += weight;
    if (median < 0 && below >= 0.5 * all) median = error;
    if (below >= 0.9 * all) return median + error / 3;
  }
  return 0;
}

}  // namespace corrections_detail

inline std::optional<proto::CorrectionSurface> choose_correction(std::span<const calibrate::SurfaceRow> rows,
                                                                 std::span<const std::string_view> features,
                                                                 std::span<const GridWish> grids) {
  using namespace corrections_detail;
  constexpr std::size_t kFewest = 12;  // rows that say anything
  constexpr double kBetter = 0.95;     // a grid is worth its factors if errors fall to this share
  if (rows.size() < kFewest) return std::nullopt;
  std::vector<double> alone;
  for (const auto& row : rows) alone.push_back(row.ratio);
  double best = score(rows, alone) * kBetter;
  std::optional<proto::CorrectionSurface> chosen;
  for (const GridWish& grid : grids) {
    const auto axes = axes_of(rows, features, grid);
    std::size_t factors = 1;
    for (const auto& axis : axes) factors *= axis.points.size();
    if (axes.empty() || factors > rows.size()) continue;
    for (const double smoothness : {0.1, 1.0}) {
      calibrate::SurfaceOptions options;
      options.smoothness = smoothness;
      options.least = 0.4;  // beyond that the formula is wrong, and no surface makes it right
      options.most = 2.5;
      std::vector<double> left(rows.size(), 1);
      for (std::uint64_t fold = 0; fold < 4; ++fold) {
        std::vector<calibrate::SurfaceRow> others;
        for (const auto& row : rows)
          if (fold_of(row) != fold) others.push_back(row);
        if (others.empty()) continue;
        const CorrectionSurface surface(calibrate::fit_surface(others, features, axes, options), features);
        for (std::size_t i = 0; i < rows.size(); ++i)
          if (fold_of(rows[i]) == fold) left[i] = rows[i].ratio / surface.factor(rows[i].features);
      }
      const double now = score(rows, left);
      if (now >= best) continue;
      best = now;
      chosen = calibrate::fit_surface(rows, features, axes, options);
    }
  }
  return chosen;
}

// One of each stage, or none; a stage corrects what those before it left.
inline std::vector<proto::CorrectionSurface> choose_corrections(
    std::vector<calibrate::SurfaceRow> rows, std::span<const std::string_view> features,
    std::span<const std::vector<GridWish>> stages) {
  for (calibrate::SurfaceRow& row : rows)
    for (double& value : row.features)
      value = value > 0 ? value : 1;  // a surface takes its least point there
  std::vector<proto::CorrectionSurface> chosen;
  for (const std::vector<GridWish>& grids : stages) {
    const auto found = choose_correction(rows, features, grids);
    if (!found) continue;
    const CorrectionSurface surface(*found, features);
    for (calibrate::SurfaceRow& row : rows) row.ratio /= surface.factor(row.features);
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace tpsim::calibration
