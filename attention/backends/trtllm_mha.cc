// TRTLLM MHA: NVIDIA's trtllm-gen paged attention kernels for Blackwell, called through FlashInfer; SGLang's
// default there. On Hopper and SM120 SGLang 0.5.23 calls TensorRT-LLM's older kernels by the same name, XQA
// for decode and FMHA v2 for prefill.
//
// Facts from the public sources of flashinfer 0.7 (trtllm/fmha/fmhaKernels.cuh: selectGqGenerationKernel,
// computeCtaAndClusterConfig; csrc/trtllm_fmha_kernel_launcher.cu) and of SGLang's trtllm_mha_backend.py:
// - decode: the query heads of one KV head are grouped into a tile of 8, 16, 32, 64 or 128 rows, KV steps of
//   128 tokens. The KV of every request is cut into the same number of parts ("multi-CTA KV mode"): as many
//   as fill the multiprocessors once, none shorter than two steps. Parts are added up inside the kernel, over
//   the cluster's shared memory (up to 16 parts) or through memory, without a launch of its own;
// - prefill: a persistent kernel whose blocks work on two tiles of 128 query rows of one head at a time;
// - sliding windows skip the steps outside; sinks are a term of the softmax's denominator;
// - with an fp8 KV cache q becomes fp8 first, so that prefill computes in fp8.
// Pages of 16, 32 or 64 tokens. The page table is built on the device; the host plans nothing. Decode is
// captured.
//
// XQA and FMHA v2, which nobody measured here, so that their prices are uncalibrated: flashinfer 0.7.2,
// csrc/xqa/mha.cu and mha_sm90.cu (nbSubSeqPerSeq, ctaTile, gemm0CtaTileNbTokens), xqa.py (run_sm90_fp8_mha),
// jit/attention/fmha_v2/fmha_library.py (loop_step, kv_loop_step); SGLang 0.5.23 trtllm_mha_backend.py
// (is_xqa_impl, use_fmha_v2).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class TrtllmMhaBackend : public PlannedBackend {
  static constexpr std::uint32_t kStep = 128;             // KV tokens of one step of the loop
  static constexpr std::uint32_t kMaxClusterSplits = 16;  // thread blocks of a cluster
  static constexpr std::uint32_t kClampTokens = 4096;     // of a part, up to which the 16 parts are kept

 public:
  using PlannedBackend::PlannedBackend;

  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override {
    return extend_cost_with_fp8_queries(layer.fp8_kv(), model, plan, layer);
  }

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;

 private:
  bool xqa() const { return generation() != GpuGeneration::kBlackwell; }
  void plan_xqa_decode(const LayerShape& layer, DecodePlan& plan) const;
  void set_fmha_v2_tiles(const LayerShape& layer, ExtendPlan& plan) const;
};

// Splits plan.items, which are whole so far: one thread block for each KV head, in steps of 256 tokens (64 of
// an fp8 cache on Hopper, which it multiplies in fp8), and as many parts of every request as fill the
// multiprocessors once, three quarters of three blocks each on Hopper's fp8 kernel. The last block of a
// request adds them up.
void TrtllmMhaBackend::plan_xqa_decode(const LayerShape& layer, DecodePlan& plan) const {
  const bool fp8 = generation() == GpuGeneration::kHopper && layer.fp8_kv() && layer.head_dim <= 256;
  const std::uint32_t unit = fp8 ? 8 : 16;
  plan.rows = ceil_div(ceil_div(layer.num_q_heads, layer.num_kv_heads), unit) * unit;
  plan.blocks_per_split = layer.num_kv_heads;
  const auto grid = plan.blocks_per_split * static_cast<std::uint32_t>(plan.items.size());
  const std::uint32_t room = multiprocessors() * 3 / grid;  // a whole number
  const std::uint32_t filling =
      fp8 ? static_cast<std::uint32_t>(std::lround(0.25 * room)) : multiprocessors() / grid;
  split_in_steps(std::max(1U, filling), fp8 ? 64 : 256, plan);
}

// Two tiles of 64 query rows of a head in a thread block on Hopper, one on SM120, and KV steps by head size.
void TrtllmMhaBackend::set_fmha_v2_tiles(const LayerShape& layer, ExtendPlan& plan) const {
  constexpr std::uint32_t kRows = 64;
  if (generation() != GpuGeneration::kHopper) {
    plan.rows = plan.tile_m = plan.tile_n = kRows;
    return;
  }
  plan.rows = plan.tile_m = 2 * kRows;
  const std::uint32_t wide = layer.fp8_kv() ? 128 : 64;  // head size up to which the widest step fits
  plan.tile_n = layer.head_dim <= wide ? 256 : layer.fp8_kv() || layer.head_dim <= 128 ? 128 : 64;
}

void TrtllmMhaBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = 8;
  while (plan.rows < group && plan.rows < 128) plan.rows *= 2;
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
  // Tiles of 64 and more rows keep at most 256 elements of the value in a block.
  if (plan.rows >= 64) plan.blocks_per_split *= ceil_div(layer.v_head_dim, 256U);
  const std::uint32_t longest = add_decode_items(layer, plan);
  if (xqa()) {
    plan_xqa_decode(layer, plan);
  } else {
    const std::uint32_t grid = plan.blocks_per_split * static_cast<std::uint32_t>(plan.items.size());
    std::uint32_t splits = std::min(ceil_div(longest, 2 * kStep), std::max(1U, multiprocessors() / grid));
    if (splits > kMaxClusterSplits && plan.rows <= 32 && ceil_div(longest, kMaxClusterSplits) <= kClampTokens)
      splits = kMaxClusterSplits;
    split_in_steps(splits, kStep, plan);
  }
  plan.merge_in_kernel = plan.merge;
}

void TrtllmMhaBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  plan.rows = plan.tile_m = 256;
  plan.tile_n = kStep;
  plan.head_blocks = layer.num_q_heads;
  if (xqa()) set_fmha_v2_tiles(layer, plan);
  add_extend_items(plan);
}

KernelCost TrtllmMhaBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                         const LayerShape& layer) {
  KernelCost cost = model.decode(plan, layer);
  if (layer.fp8_kv() && cost.launches > 0 && !xqa()) ++cost.launches;  // q's cast; XQA's is its own
  return cost;
}

}  // namespace

extern const BackendDescription trtllm_mha = {
    .row = {.name = "trtllm_mha",
            .title = "TRTLLM MHA",
            .mha_place = 7,
            .generations = {GpuGeneration::kHopper, GpuGeneration::kBlackwell,
                            GpuGeneration::kBlackwellSm120},
            .has_mha = true,
            .mha_page_sizes = {16, 32, 64},
            .mha_fp8 = Support::kYes,
            .mha_fp4 = Support::kYes,
            .mha_spec = Support::kYes,
            .sliding_window = Support::kYes,
            .sinks = true,
            .attention_chunk = true,
            .wide_heads = true,
            .linear_layers = true,
            .draft_extend_graphs = DraftExtendGraphs::kSinceFlashInfer,
            .refuses_trees = true,
            .uncaches_states = true,
            .no_fp8_prefill = {GpuGeneration::kBlackwellSm120},
            .block_sparse_pages = {16, 32, 64, 128},
            .plan_kernels = 2,
            .verifies_by_decoding = true},
    .create = create_backend<TrtllmMhaBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      const bool chains = selection.spec_topk == 0 || (selection.spec_topk == 1 && selection.spec_topk_given);
      const bool blocks = selection.block_sparse && !selection.fp8_e4m3_named;  // fa4's
      return selection.generation == GpuGeneration::kBlackwell && !selection.mla && chains && !blocks &&
                     !selection.short_convolutions
                 ? "Blackwell: trtllm_mha is SGLang's default for MHA models"
                 : "";
    },
};

}  // namespace tpsim::attention::backends
