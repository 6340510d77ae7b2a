// Fits an MLA kernel of one GPU, "attention.BACKEND.mla_decode", ".mla_extend" (absorbed) or ".mla_prefill"
// (expanded), to measured calls: the coefficients of attention/plan_cost.h by a search, then the corrections
// (launch/calibrate/corrections.h) that rows which a fit has not seen support.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/calibrate/surface_fit.h"
#include "launch/kernels/attention_rows.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

// Tokens a page, as the tables of MLA kernels were measured.
inline constexpr std::uint32_t kMlaPageSize = 64;

// Rows of one table or file. Each source has the same weight, however many rows it has.
struct MlaSource {
  std::vector<calibration::AttentionRow> rows;
  // The rows say themselves what is left out (AttentionRow::held); else one in five is, by a hash of its
  // shape (calibration::held_out()).
  bool parted = false;
};

struct MlaFit {
  // All but `source`; the errors are those of rows left out.
  proto::OperatorEfficiency entry;
  RelativeErrors left_out, formula;  // of the rows left out; the second without the corrections
  RelativeErrors fitted;             // of the others
  struct Priced {
    const calibration::AttentionRow* row;
    double seconds;
    bool left_out;
    bool parted;  // of a source that is
  };
  std::vector<Priced> priced;  // in the order of `sources`, which must outlive them
};

// Throws std::invalid_argument where there are no rows or the backend has no plans.
MlaFit fit_mla(const proto::HardwareProfile& profile, const std::string& backend,
               calibration::MlaKernel kernel, std::span<const MlaSource> sources);

// Errors of the rows of `fit` that are left out, at the prices of `profile`.
RelativeErrors errors_left_out(const proto::HardwareProfile& profile, const std::string& backend,
                               calibration::MlaKernel kernel, const MlaFit& fit);

}  // namespace tpsim::calibrate
