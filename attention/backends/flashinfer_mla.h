// FlashInfer's kernels as far as several backends share them. SGLang's classes of flashmla, cutlass_mla and
// trtllm_mla derive from flashinfer's (flashinfer_mla_backend.py).
//
// Decode and absorbed extend are one persistent kernel: pairs of thread blocks for more than 64 rows of
// heads, single ones else; parts of a length that shares the KV evenly, rounded up, go to the least busy
// block (MLAPlan, attention/scheduler.cuh of flashinfer 0.7.2). The un-absorbed form is the dense prefill
// kernel, again for every chunk of a cached prefix: FlashInfer's FA3 template on Hopper, CUTLASS or
// TensorRT-LLM on Blackwell, its FA2 template else. A cache of another width than the queries is widened as a
// whole before every call.
#pragma once

#include <cstdint>
#include <span>

#include "attention/planned_backend.h"

namespace tpsim::attention::backends {

// FlashInfer's query tile in rows (utils.cuh, FA2DetermineCtaTileQ) by the average number of packed rows of a
// request.
std::uint32_t flashinfer_tile_q(double average_packed_len, std::uint32_t head_dim);

void plan_flashinfer_mla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                                std::uint32_t multiprocessors, DecodePlan& plan);
// REQUIRES: plan.items are filled; layer's form is MLA's.
void plan_flashinfer_mla_extend(const proto::HardwareProfile& profile, const LayerShape& layer,
                                ExtendPlan& plan);

// A backend that has a decode kernel of its own and extends as flashinfer does, which its row says, too.
class FlashInferMlaBackend : public PlannedBackend {
 public:
  using PlannedBackend::PlannedBackend;

 protected:
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
};

}  // namespace tpsim::attention::backends
