// TRTLLM MHA: NVIDIA's trtllm-gen paged attention kernels for Blackwell, called through FlashInfer; SGLang's
// default there. On Hopper and SM120 SGLang 0.5.23 calls TensorRT-LLM's older kernels by the same name, XQA
// for decode and FMHA v2 for prefill (xqa_plans.h).
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
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/xqa_plans.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kStep = 128;             // KV tokens of one step of the loop
constexpr std::uint32_t kMaxClusterSplits = 16;  // thread blocks of a cluster
constexpr std::uint32_t kClampTokens = 4096;     // of a part, up to which the cluster's 16 parts are kept

class TrtllmMhaBackend : public PlannedBackend {
 public:
  TrtllmMhaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : PlannedBackend("trtllm_mha", profile, page_size),
        generation_(parse_gpu_generation(profile.architecture()).value_or(GpuGeneration::kBlackwell)) {}

  // Lengths, their sums and the page table: two small kernels a pass.
  KernelCost plan_cost() const override { return small_kernels(2); }
  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override {
    return extend_cost_with_fp8_queries(model, plan, layer);
  }

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  bool verifies_by_decoding() const override { return true; }

 private:
  bool xqa() const { return generation_ != GpuGeneration::kBlackwell; }
  GpuGeneration generation_;
};

void TrtllmMhaBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = 8;
  while (plan.rows < group && plan.rows < 128) plan.rows *= 2;
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
  // Tiles of 64 and more rows keep at most 256 elements of the value in a block.
  if (plan.rows >= 64) plan.blocks_per_split *= ceil_div(layer.v_head_dim, 256U);
  const std::uint32_t longest = add_decode_items(layer, plan);
  if (xqa()) return plan_xqa_decode(layer, generation_, multiprocessors(), plan);
  const std::uint32_t grid = plan.blocks_per_split * static_cast<std::uint32_t>(lengths.size());
  std::uint32_t splits = std::min(ceil_div(longest, 2 * kStep), std::max(1U, multiprocessors() / grid));
  if (splits > kMaxClusterSplits && plan.rows <= 32 && ceil_div(longest, kMaxClusterSplits) <= kClampTokens) {
    splits = kMaxClusterSplits;
  }
  if (splits == 1) return;
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    item.split_tokens = std::min(ceil_div(ceil_div(tokens, kStep), splits) * kStep, tokens);
    item.splits = ceil_div(tokens, item.split_tokens);
    plan.merge = plan.merge || item.splits > 1;
  }
  plan.merge_in_kernel = plan.merge;
}

void TrtllmMhaBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  plan.rows = plan.tile_m = 256;
  plan.tile_n = kStep;
  plan.head_blocks = layer.num_q_heads;
  if (xqa()) set_fmha_v2_tiles(layer, generation_, plan);
  add_extend_items(plan);
}

KernelCost TrtllmMhaBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                         const LayerShape& layer) {
  KernelCost cost = model.decode(plan, layer);
  if (layer.fp8_kv() && cost.launches > 0 && !xqa()) ++cost.launches;  // q's cast; XQA's is its own
  return cost;
}

std::string_view chosen_for(const Selection& selection) {
  const bool chains = selection.spec_topk == 0 || (selection.spec_topk == 1 && selection.spec_topk_given);
  return selection.generation == GpuGeneration::kBlackwell && !selection.mla && chains
             ? "Blackwell: trtllm_mha is SGLang's default for MHA models"
             : "";
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
            .linear_layers = true,
            .no_fp8_prefill = {GpuGeneration::kBlackwellSm120}},
    .create = create_backend<TrtllmMhaBackend>,
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
