// FlashInfer's MLA kernels, which flashinfer, flashmla, cutlass_mla and trtllm_mla share: SGLang's classes of
// the last three derive from the first (flashinfer_mla_backend.py).
//
// Decode and absorbed extend are one persistent kernel (MLAPlan, attention/scheduler.cuh of flashinfer
// 0.7.2). The un-absorbed form is the dense prefill kernel, again for every chunk of a cached prefix:
// FlashInfer's FA3 template on Hopper, CUTLASS or TensorRT-LLM on Blackwell, its FA2 template else. A cache
// of another width than the queries is widened as a whole before every call.
#pragma once

#include <string>

#include "attention/mla_plans.h"
#include "attention/planned_backend.h"

namespace tpsim::attention {

inline constexpr MlaRule kFlashInferMlaRule = {
    .prefix = MlaPrefix::kFromThreshold, .one_shot = true, .ragged = true};

// REQUIRES: plan.items are filled; layer's form is MLA's.
void plan_flashinfer_mla_extend(const proto::HardwareProfile& profile, const LayerShape& layer,
                                ExtendPlan& plan);

// A backend that has a decode kernel of its own and extends as flashinfer does.
class FlashInferMlaBackend : public PlannedBackend {
 public:
  FlashInferMlaBackend(const std::string& name, const proto::HardwareProfile& profile,
                       std::uint32_t page_size)
      : PlannedBackend(name, profile, page_size, "flashinfer") {}

  KernelCost plan_cost() const override;

 protected:
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  MlaRule mla_rule() const override { return kFlashInferMlaRule; }
};

}  // namespace tpsim::attention
