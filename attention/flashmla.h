// FlashMLA (Hopper): absorbed decode over pages of 64 latents; what it does not cover it does as flashinfer.
//
// Source: SGLang's flashmla_backend.py, whose class derives from FlashInfer's, and the planner that
// mla_plans.h names.
#pragma once

#include "attention/flashinfer.h"

namespace tpsim::attention {

class FlashMlaBackend : public FlashInferBackend {
 public:
  FlashMlaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : FlashInferBackend(profile, page_size, "flashmla") {}

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  MlaRule mla_rule() const override {
    return {.prefix = MlaPrefix::kFromThreshold, .one_shot = true, .ragged = true};
  }
};

}  // namespace tpsim::attention
