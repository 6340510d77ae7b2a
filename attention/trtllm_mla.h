// TensorRT-LLM's MLA kernels (Blackwell): absorbed decode over pages of 32 or 64 latents, and un-absorbed
// prefill over dense keys and values, also for the chunks of a cached prefix; absorbed extends are
// flashinfer's.
//
// Source: SGLang's trtllm_mla_backend.py, whose class derives from FlashInfer's, and the planner that
// mla_plans.h names.
#pragma once

#include "attention/flashinfer.h"

namespace tpsim::attention {

class TrtllmMlaBackend : public FlashInferBackend {
 public:
  TrtllmMlaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : FlashInferBackend(profile, page_size, "trtllm_mla") {}

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  MlaRule mla_rule() const override { return {.prefix = MlaPrefix::kExpanded}; }
};

}  // namespace tpsim::attention
