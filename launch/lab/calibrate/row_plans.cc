#include "launch/lab/calibrate/row_plans.h"

#include <stdexcept>

#include "attention/selection/registry.h"

namespace tpsim::calibrate {

using attention::PlanCost;
using attention::Residency;

RowPlanner::RowPlanner(const proto::HardwareProfile& profile, const std::string& backend,
                       kernels::AttentionKernel kernel)
    : profile_(profile),
      kernel_(kernel),
      backend_(attention::create_attention_backend(backend, profile, kernels::page_size_of(kernel))),
      planned_(dynamic_cast<attention::PlannedBackend*>(backend_.get())) {
  if (planned_ == nullptr) throw std::invalid_argument(backend + " plans no kernels of its own");
}

RowPlan RowPlanner::plan(const kernels::AttentionRow& row) {
  RowPlan plan{&row, {}, {}, 1, false, true};
  kernels::with_metadata(row, decodes(), [&](const attention::ForwardMetadata& metadata) {
    planned_->init_forward_metadata(metadata);
    if (decodes()) {
      plan.decode = planned_->decode_plan(row.layer);
    } else {
      plan.extend = planned_->extend_plan(row.layer);
    }
  });
  return plan;
}

PlanCosts RowPlanner::costs(const PlanCoefficients& c, const Corrections& corrections) const {
  return {PlanCost(profile_, c, Residency::kHot, corrections),
          PlanCost(profile_, c, Residency::kCold, corrections)};
}

double RowPlanner::price(const RowPlan& plan, const PlanCosts& costs) {
  const PlanCost& cost = costs.of(*plan.row);
  return decodes() ? planned_->decode_cost(cost, plan.decode, plan.row->layer).seconds
                   : planned_->extend_cost(cost, plan.extend, plan.row->layer).seconds;
}

std::vector<double> RowPlanner::features(const RowPlan& plan, const PlanCosts& costs) const {
  const PlanCost& cost = costs.of(*plan.row);
  const auto values = decodes() ? cost.features(plan.decode, plan.row->layer).values()
                                : cost.features(plan.extend, plan.row->layer).values();
  return {values.begin(), values.end()};
}

}  // namespace tpsim::calibrate
