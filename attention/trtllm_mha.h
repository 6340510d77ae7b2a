// TRTLLM MHA: NVIDIA's trtllm-gen paged attention kernels for Blackwell, called through FlashInfer.
//
// Facts from the public sources of flashinfer 0.7 (trtllm/fmha/fmhaKernels.cuh: selectGqGenerationKernel,
// computeCtaAndClusterConfig; csrc/trtllm_fmha_kernel_launcher.cu) and of SGLang's trtllm_mha_backend.py:
// - decode: the query heads of one KV head are grouped into a tile of 8, 16, 32, 64 or 128 rows, KV steps of
//   128 tokens. The KV of all requests is cut into the same number of parts ("multi-CTA KV mode"): as many as
//   fill the multiprocessors once, none shorter than two steps. Parts are added up inside the kernel, over
//   the cluster's shared memory (up to 16 parts) or through memory, without a launch of its own;
// - prefill: a persistent kernel over tiles of 128 rows, two of them at once, of one query head;
// - sliding windows skip the steps outside, sinks are a term of the softmax's denominator;
// - with an fp8 KV cache q is cast to fp8 first, and key and value are quantised and written by one kernel.
// Pages of 16, 32 or 64 tokens. The page table is built on the device; the host plans nothing.
#pragma once

#include <cstdint>

#include "attention/planned_backend.h"

namespace tpsim::attention {

class TrtllmMhaBackend : public PlannedBackend {
 public:
  TrtllmMhaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size);

  KernelCost plan_cost() const override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;
  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;

  // Rows of the decode kernel's query tile for `group` query heads per KV head.
  static std::uint32_t tile_q(std::uint32_t group);

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
};

}  // namespace tpsim::attention
