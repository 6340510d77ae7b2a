// torch.nn.functional.scaled_dot_product_attention, one request after another.
//
// Facts from SGLang's torch_native_backend.py: each request's keys and values are gathered from the pool into
// dense tensors; a prefill behind a cached prefix computes attention for query rows of the whole sequence and
// throws the prefix's away; every request is a chain of small launches, and the pass cannot be captured.
#pragma once

#include <cstdint>

#include "attention/planned_backend.h"

namespace tpsim::attention {

class TorchNativeBackend : public PlannedBackend {
 public:
  TorchNativeBackend(const proto::HardwareProfile& profile, std::uint32_t page_size);

  // Launches of one request in one layer: gathers, layout copies, SDPA, output copy. Counted on an H200
  // (tests/calibration/measured/h200-sxm_attention.csv); long decodes launch up to one more.
  static constexpr std::uint32_t kDecodeLaunches = 5;
  static constexpr std::uint32_t kExtendLaunches = 7;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  KernelCost decode_cost(const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const ExtendPlan& plan, const LayerShape& layer) override;

 private:
  void add_gather(std::uint32_t tokens, const LayerShape& layer, KernelCost& cost) const;

  PlanCoefficients extend_;
  PlanCoefficients decode_;
  PlanCost extend_model_;
  PlanCost decode_model_;
  DecodePlan one_decode_;
  ExtendPlan one_extend_;
};

}  // namespace tpsim::attention
