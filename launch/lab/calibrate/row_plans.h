// Measured calls of attention with the plans that a backend makes of them: planned once, priced by every
// candidate of a search for coefficients; and what a fit to them looks for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/planned_backend.h"
#include "launch/lab/calibrate/coordinate_search.h"
#include "launch/lab/calibrate/surface_fit.h"
#include "launch/lab/kernels/attention_rows.h"
#include "proto/coefficients.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

struct RowPlan {
  const kernels::AttentionRow* row;
  attention::DecodePlan decode;  // the one or the other
  attention::ExtendPlan extend;
  double weight = 1;
  bool left_out = false;
  bool searched = true;  // the search for coefficients looks at a part of a large table only
};

// A backend's costs with hot and cold caches.
struct PlanCosts {
  attention::PlanCost hot, cold;
  const attention::PlanCost& of(const kernels::AttentionRow& row) const {
    return row.residency == attention::Residency::kHot ? hot : cold;
  }
};

class RowPlanner {
 public:
  // Throws std::invalid_argument for a backend that plans no kernels of its own. `profile` must outlive this.
  RowPlanner(const proto::HardwareProfile& profile, const std::string& backend,
             kernels::AttentionKernel kernel);

  kernels::AttentionKernel kernel() const { return kernel_; }
  bool decodes() const { return kernels::decodes(kernel_); }
  // Keys and values of each request are copied together first.
  bool gathers() const { return planned_->kernel() == attention::KernelKind::kGathered; }

  // `row` must outlive the plan.
  RowPlan plan(const kernels::AttentionRow& row);
  PlanCosts costs(const PlanCoefficients& c, const Corrections& corrections = {}) const;
  // Seconds of the planned kernels; AttentionRow::rest_seconds come on top.
  double price(const RowPlan& plan, const PlanCosts& costs);
  std::vector<double> features(const RowPlan& plan, const PlanCosts& costs) const;

 private:
  const proto::HardwareProfile& profile_;
  kernels::AttentionKernel kernel_;
  std::unique_ptr<attention::AttentionBackend> backend_;
  attention::PlannedBackend* planned_;
};

// The coefficients of attention/plan_cost.h that vary: those of `c`, which must outlive it, that some of
// `rows` can tell.
CoordinateSearch searched(std::span<const RowPlan> rows, const RowPlanner& planner, PlanCoefficients& c);

// The grids of the corrections that follow, as add_corrections() takes them.
std::vector<std::vector<GridWish>> correction_stages(kernels::AttentionKernel kernel);

}  // namespace tpsim::calibrate
