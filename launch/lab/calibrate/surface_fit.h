// Fits a correction surface (proto/correction_surface.h) to measured calls of one operator class.
//
// Unknown are the factors at the points of the grid; each row wants its interpolated factor to be measured /
// modeled. Least absolute relative deviation (iteratively reweighted least squares), so that the surface
// serves the median row and not the worst; differences between neighbouring points cost, so that a point
// without rows takes after those that have some, and rows of one point are not believed to the last.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/lab/kernels/kernel_table.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

using kernels::relative_errors;
using kernels::RelativeErrors;

// A class of a profile, fitted to measured calls of it.
struct ClassFit {
  // All but `source`; its errors are those of rows left out, or of all rows where none is.
  proto::OperatorEfficiency entry;
  std::size_t rows = 0;
  RelativeErrors left_out = {}, formula = {};  // of the rows left out; the second without the corrections
  RelativeErrors before = {};                  // of the same rows by the entry that the profile has

  void set_errors(const RelativeErrors& errors) {
    entry.set_median_error(errors.median);
    entry.set_p90_error(errors.p90);
  }
};

struct SurfaceRow {
  std::vector<double> features;  // in the order of the class's feature_names(), > 0
  double ratio = 1;              // measured seconds / seconds of the formula and the surfaces before this one
  double weight = 1;
};

struct SurfaceAxis {
  std::string feature;
  std::vector<double> points;  // ascending, > 0
};

struct SurfaceOptions {
  // Weight of the differences between neighbouring points beside the mean deviation of the rows. 0.1 follows
  // every point that a handful of rows support, 10 only what most rows agree on.
  double smoothness = 1;
  double least = 0.2;  // of a factor
  double most = 5;
};

// At most `most` points from the least to the greatest value that a feature has: all distinct ones where they
// are few, else points between which about equally many of the distinct values lie.
SurfaceAxis axis_of(std::span<const SurfaceRow> rows, std::span<const std::string_view> features,
                    std::string_view feature, std::size_t most);

// Throws std::invalid_argument where there are no rows, or an axis is of no feature.
proto::CorrectionSurface fit_surface(std::span<const SurfaceRow> rows,
                                     std::span<const std::string_view> features,
                                     std::span<const SurfaceAxis> axes, const SurfaceOptions& options = {});

// Which corrections (proto/correction_surface.h) a class's rows support: grids and smoothness are chosen by
// rows that a fit to the others has not seen; none where the formula alone does as well. Rows that the caller
// leaves out for its own errors take no part.

// An axis that a grid may have: at most `most` points of the rows' values; or these points, of which those
// that no row comes near are left out.
struct AxisWish {
  std::string_view feature;
  std::size_t most = 0;
  std::vector<double> points = {};
};
using GridWish = std::vector<AxisWish>;

struct CorrectionOptions {
  std::vector<double> smoothness = {0.1, 1.0};
  std::size_t folds = 4;           // quarters of the rows that are left out in turn
  double better = 0.95;            // a grid is worth its factors if errors fall to this share
  double least = 0.2, most = 5;    // of a factor
  std::size_t most_rows = 100000;  // that the choice looks at, evenly
};

// Adds surfaces that multiply to `entry`: of each stage the best of its grids, or none, for what the stages
// before it left.
void add_corrections(std::vector<SurfaceRow> rows, std::span<const std::string_view> features,
                     std::span<const std::vector<GridWish>> stages, const CorrectionOptions& options,
                     proto::OperatorEfficiency& entry);

}  // namespace tpsim::calibrate
