// What a fit of an attention kernel looks for: which coefficients of attention/plan_cost.h vary, and the
// grids of the corrections that follow.
#pragma once

#include <span>
#include <vector>

#include "launch/lab/calibrate/coordinate_search.h"
#include "launch/lab/calibrate/corrections.h"
#include "launch/lab/calibrate/row_plans.h"
#include "proto/coefficients.h"

namespace tpsim::calibrate {

// Those of `c`, which must outlive it, that some of `rows` can tell.
CoordinateSearch searched(std::span<const RowPlan> rows, const RowPlanner& planner, PlanCoefficients& c);

// As add_corrections() takes them.
std::vector<std::vector<GridWish>> correction_stages(kernels::AttentionKernel kernel);

}  // namespace tpsim::calibrate
