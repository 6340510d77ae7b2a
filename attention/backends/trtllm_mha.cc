// TRTLLM MHA: NVIDIA's trtllm-gen paged attention kernels for Blackwell, called through FlashInfer; SGLang's
// default there.
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

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kStep = 128;             // KV tokens of one step of the loop
constexpr std::uint32_t kMaxClusterSplits = 16;  // thread blocks of a cluster
constexpr std::uint32_t kClampTokens = 4096;     // of a part, up to which the cluster's 16 parts are kept

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

class TrtllmMhaBackend : public PlannedBackend {
 public:
  TrtllmMhaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : PlannedBackend("trtllm_mha", profile, page_size) {}

  // Lengths, their sums and the page table: two small kernels a pass.
  KernelCost plan_cost() const override { return {2 * 2e-6, 0, 0, 2}; }
  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  bool verifies_by_decoding() const override { return true; }
};

void TrtllmMhaBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = 8;
  while (plan.rows < group && plan.rows < 128) plan.rows *= 2;
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
  // Tiles of 64 and more rows keep at most 256 elements of the value in a block.
  if (plan.rows >= 64) plan.blocks_per_split *= ceil_div(layer.v_head_dim, 256);
  std::uint32_t longest = 0;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    plan.items.push_back(decode_item(i, lengths[i], layer));
    longest = std::max(longest, plan.items.back().split_tokens);
  }
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
  add_extend_items(plan);
}

KernelCost TrtllmMhaBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                         const LayerShape& layer) {
  KernelCost cost = model.decode(plan, layer);
  if (layer.fp8_kv() && cost.launches > 0) ++cost.launches;  // q's cast
  return cost;
}

KernelCost TrtllmMhaBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                         const LayerShape& layer) {
  LayerShape cast = layer;
  if (layer.fp8_kv()) cast.q_bytes = 1;
  KernelCost cost = model.extend(plan, cast);
  if (layer.fp8_kv() && cost.launches > 0) ++cost.launches;
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
            .generations = {GpuGeneration::kBlackwell},
            .has_mha = true,
            .mha_page_sizes = {16, 32, 64},
            .mha_fp8 = Support::kYes,
            .mha_fp4 = Support::kYes,
            .mha_spec = Support::kYes,
            .sliding_window = Support::kYes,
            .sinks = true,
            .attention_chunk = true,
            .linear_layers = true},
    .create = create_backend<TrtllmMhaBackend>,
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
