// Fits an attention class of one GPU, "attention.BACKEND.extend" or ".decode", to measured calls: first the
// coefficients of attention/plan_cost.h by a search, then the corrections (launch/calibrate/corrections.h)
// that rows which a fit has not seen support.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/planned_backend.h"
#include "launch/kernels/attention_rows.h"
#include "proto/coefficients.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

// Rows of one table or file. Each source has the same weight, however many rows it has.
struct AttentionSource {
  std::vector<calibration::AttentionRow> rows;
  // One shape in four is kept aside for the errors (kept_aside()). Rows that are `held` always are.
  bool keep_aside = false;
};

struct AttentionFit {
  proto::OperatorEfficiency
      efficiency;  // all but `source`; errors of the rows kept aside (all rows if none is)
  std::size_t rows = 0;
  // Of every row, in the order of the sources: seconds by the fit, by its formula alone, and whether the row
  // was kept aside.
  struct Priced {
    const calibration::AttentionRow* row;
    double seconds;
    double formula_seconds;
    bool aside;
  };
  std::vector<Priced> priced;  // rows of `sources`, which must outlive them
};

// `starts`: coefficients that the search begins at; the best of what it finds counts. `search`: false takes
// the first of them as they are and fits corrections alone. Throws std::invalid_argument where there are no
// rows or the backend has no plans.
AttentionFit fit_attention(const proto::HardwareProfile& profile, const std::string& backend, bool decode,
                           std::span<const AttentionSource> sources, std::span<const PlanCoefficients> starts,
                           bool search = true);

}  // namespace tpsim::calibrate
