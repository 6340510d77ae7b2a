// A hardware profile fitted to measured loads, and what the fit came to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/lab/calibrate/coefficient_fit.h"
#include "launch/lab/calibrate/coefficients_of_run.h"
#include "launch/lab/calibrate/serving_rows.h"
#include "proto/hardware.pb.h"
#include "proto/validation.pb.h"

namespace tpsim::calibrate {

struct CoefficientChange {
  Coefficient coefficient;
  double before = 0, after = 0;
  FittedUnknown fitted;
  std::size_t rows = 0;      // of the fit, that feel it
  proto::ErrorFigures left;  // of the rows held out that feel it, or of those of the fit where these are few
};

// Of the rows held out.
struct KindErrors {
  ServingRow::Kind kind = ServingRow::Kind::kDecode;
  proto::ErrorFigures before, after;
};

struct ServingFit {
  proto::HardwareProfile profile;  // with the source and error of each coefficient that was fitted
  std::vector<CoefficientChange> changes;
  std::vector<KindErrors> errors;
  std::size_t rows = 0, held_out = 0;
  bool worse = false;  // the rows held out came no closer: nothing was changed
};

// `source`: which measurements these are. `on_served` as ServingRows::log_ratios(). Throws UserError where
// there are fewer than kLeastFitRows rows.
ServingFit fit_serving(ServingRows& rows, const proto::HardwareProfile& profile, const std::string& source,
                       std::uint32_t threads, const std::function<void()>& on_served);

}  // namespace tpsim::calibrate
