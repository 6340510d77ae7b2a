// What corrections of attention classes (proto/correction_surface.h) see of a plan: kPlanFeatures of
// proto/coefficients.h, and the least time that a datasheet leaves for its work.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>

#include "attention/layer_shape.h"
#include "attention/plan.h"
#include "proto/coefficients.h"

namespace tpsim::attention {

// In the order of kPlanFeatures; 0 where a feature has no value (no prefix, no window).
struct PlanFeatures {
  double requests = 0;
  double tokens = 0;
  double prefix = 0;
  double kv_heads = 0;
  double group = 0;
  double head_dim = 0;
  double window = 0;
  double element_bytes = 0;
  double blocks = 0;
  double part = 0;
  double spread = 0;
  double l2_fill = 0;
  double rows = 0;

  std::array<double, std::size(kPlanFeatures)> values() const {
    return {requests,      tokens, prefix, kv_heads, group,   head_dim, window,
            element_bytes, blocks, part,   spread,   l2_fill, rows};
  }
};

DecodeTotals decode_totals(const DecodePlan& plan);

// Those of the batch and the layer; blocks, part and l2_fill are left to the caller, who counted them.
PlanFeatures plan_features(const DecodeTotals& totals, const LayerShape& layer);
PlanFeatures plan_features(const ExtendPlan& plan, const LayerShape& layer);

// Arithmetic and traffic that no kernel can do without: unpadded heads, pairs of tokens under the mask, every
// byte of queries, outputs and visible KV once.
struct PlanWork {
  double flops = 0;
  double bytes = 0;
};
PlanWork least_work(const DecodeTotals& totals, const LayerShape& layer);
PlanWork least_work(const ExtendPlan& plan, const LayerShape& layer);

}  // namespace tpsim::attention
