// Which corrections (proto/correction_surface.h) a class's rows support: grids and smoothness are chosen by
// rows that a fit to the others has not seen; none where the formula alone does as well. Rows that the caller
// leaves out for its own errors take no part.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

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
