// Fits an attention kernel of one GPU, class "attention.BACKEND." and "extend", "decode", "mla_decode",
// "mla_extend" (absorbed) or "mla_prefill" (expanded), to measured calls: first the coefficients of
// attention/plan_cost.h by a search, then the corrections (surface_fit.h) that rows which a fit has not seen
// support.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "proto/coefficients.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

// Rows of one table or file. Each source has the same weight, however many rows it has.
struct AttentionSource {
  std::vector<kernels::AttentionRow> rows;
  // The rows alone say what is left out (AttentionRow::held); else kernels::is_left_out() does, too.
  bool parted = false;
};

struct AttentionFit : ClassFit {
  struct Priced {
    const kernels::AttentionRow* row;
    double seconds, formula_seconds;  // by the fit, and by its formula alone
    bool left_out;
  };
  std::vector<Priced> priced;  // every row in the order of the sources, which must outlive them
};

// `starts`: coefficients that the search begins at; the best of what it finds counts. Throws
// std::invalid_argument where there are no rows or the backend has no plans.
AttentionFit fit_attention(const proto::HardwareProfile& profile, const std::string& backend,
                           kernels::AttentionKernel kernel, std::span<const AttentionSource> sources,
                           const std::vector<PlanCoefficients>& starts = std::vector<PlanCoefficients>(1));

}  // namespace tpsim::calibrate
