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

// Fewer rows than this tell no coefficients.
inline constexpr std::size_t kLeastRows = 10;

// `operator_class`: one of kernels::operator_classes(). `profile`: of the GPU; its own entry of the class
// counts for `before` alone. Rows left out are one in five, by a hash of their shape: on every machine and in
// every order the same ones; where there are few rows, each of five parts in turn (but for `before`). Throws
// std::invalid_argument for fewer than kLeastRows rows.
ClassFit fit_operator(const std::string& operator_class, const std::vector<kernels::OperatorRow>& rows,
                      const proto::HardwareProfile& profile);

}  // namespace tpsim::calibrate
