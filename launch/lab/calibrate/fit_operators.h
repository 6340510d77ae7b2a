// Fits an operator class of rank/cost/op_cost.h (matrix products, experts, collectives) to measured calls:
// first the coefficients of its formula, then corrections over the shapes where they serve rows that the fit
// has not seen.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/lab/calibrate/surface_fit.h"
#include "launch/lab/kernels/operator_rows.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

struct OperatorFit {
  // The class's coefficients, corrections and errors; `source` is the caller's to set. The errors are those
  // of rows left out: one in five, by a hash of their shape; where there are few, each of five parts in turn.
  proto::OperatorEfficiency entry;
  std::size_t rows = 0;
  RelativeErrors left_out;
  RelativeErrors formula;  // of the rows left out, without the corrections
};

// Of the first of those parts, which many rows' fits leave out: by its shape alone, so on every machine and
// in every order of the rows the same ones.
bool is_left_out(const kernels::OperatorRow& row);

// Fewer rows than this tell no coefficients.
inline constexpr std::size_t kLeastRows = 10;

// `operator_class`: one of kernels::operator_classes(). `profile`: of the GPU; its own entry of the class
// counts for nothing. Throws std::invalid_argument for fewer than kLeastRows rows.
OperatorFit fit_operator(const std::string& operator_class, const std::vector<kernels::OperatorRow>& rows,
                         const proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
