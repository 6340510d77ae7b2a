// CUTLASS MLA (Blackwell): absorbed decode over pages of 128 latents; what it does not cover it does as
// flashinfer.
//
// Source: SGLang's cutlass_mla_backend.py (0.5.12; later releases have it no more), whose class derives from
// FlashInfer's.
#pragma once

#include "attention/flashinfer.h"

namespace tpsim::attention {

class CutlassMlaBackend : public FlashInferBackend {
 public:
  CutlassMlaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : FlashInferBackend(profile, page_size, "cutlass_mla") {}

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  MlaRule mla_rule() const override { return {.prefix = MlaPrefix::kFromThreshold}; }
};

}  // namespace tpsim::attention
