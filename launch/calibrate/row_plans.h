// Measured calls of attention with the plans that a backend makes of them: planned once, priced by every
// candidate of a search for coefficients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/planned_backend.h"
#include "launch/kernels/attention_rows.h"
#include "proto/coefficients.h"
#include "proto/hardware.pb.h"

namespace tpsim::calibrate {

struct RowPlan {
  const calibration::AttentionRow* row;
  attention::DecodePlan decode;  // the one or the other
  attention::ExtendPlan extend;
};

// A backend's costs with hot and cold caches.
struct PlanCosts {
  attention::PlanCost hot, cold;
  const attention::PlanCost& of(const RowPlan& plan) const {
    return plan.row->residency == attention::Residency::kHot ? hot : cold;
  }
};

class RowPlanner {
 public:
  // Throws std::invalid_argument for a backend that plans no kernels of its own. `profile` must outlive this.
  RowPlanner(const proto::HardwareProfile& profile, const std::string& backend, std::uint32_t page_size,
             bool decodes);

  bool decodes() const { return decodes_; }
  std::string_view backend() const { return planned_->name(); }

  // `row` must outlive the plan.
  RowPlan plan(const calibration::AttentionRow& row);
  PlanCosts costs(const PlanCoefficients& c, const Corrections& corrections = {}) const;
  // Seconds of the planned kernels; AttentionRow::rest_seconds come on top.
  double price(const RowPlan& plan, const PlanCosts& costs);
  std::vector<double> features(const RowPlan& plan, const PlanCosts& costs) const;

 private:
  const proto::HardwareProfile& profile_;
  std::unique_ptr<attention::AttentionBackend> backend_;
  attention::PlannedBackend* planned_;
  bool decodes_;
};

// Whether some row is so: a coefficient that none can tell does not vary.
template <typename Rows, typename Which>
bool any(const Rows& rows, Which which) {
  return std::any_of(rows.begin(), rows.end(), which);
}

}  // namespace tpsim::calibrate
