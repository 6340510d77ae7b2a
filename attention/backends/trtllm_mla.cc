// TensorRT-LLM's MLA kernels (Blackwell): absorbed decode over pages of 32 or 64 latents, and un-absorbed
// prefill over dense keys and values, always in chunks where a prefix is cached; absorbed extends are
// flashinfer's.
//
// Drafts are verified by the decode kernel, which takes several query tokens of a request.
//
// Decode cuts KV into parts of at least two steps of 128 tokens, as many as fill the multiprocessors once,
// counted for the longest request and the same for all.
//
// Source: SGLang's trtllm_mla_backend.py; computeCtaAndClusterConfig, include/flashinfer/trtllm/fmha/
// fmhaKernels.cuh of flashinfer 0.7.2.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/backends/flashinfer_mla.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class TrtllmMlaBackend : public FlashInferMlaBackend {
 public:
  using FlashInferMlaBackend::FlashInferMlaBackend;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    constexpr std::uint32_t kStep = 128;
    constexpr std::uint32_t kFewHeads = 32;  // up to here the kernel with narrow tiles
    const std::uint32_t heads = layer.num_q_heads;
    plan.rows = heads <= 8 ? 8 : heads <= kFewHeads ? 16 : 64;
    plan.blocks_per_split = ceil_div(heads, plan.rows);
    const std::uint32_t longest = add_decode_items(layer, plan);
    const auto grid = plan.blocks_per_split * static_cast<std::uint32_t>(plan.items.size());
    const std::uint32_t most = std::min(ceil_div(longest, 2 * kStep), std::max(1U, multiprocessors() / grid));
    const std::uint32_t part = ceil_div(ceil_div(longest, most), kStep) * kStep;
    for (DecodeItem& item : plan.items) {
      item.splits = ceil_div(item.kv_end, part);
      item.split_tokens = std::min(part, item.kv_end);
    }
    plan.merge = most > 1;
  }
};

}  // namespace

extern const BackendDescription trtllm_mla = {
    .row = {.name = "trtllm_mla",
            .title = "TRTLLM MLA (Blackwell)",
            .mla_place = 4,
            .generations = {GpuGeneration::kBlackwell},
            .has_mla = true,
            .mla_page_sizes = {32, 64},
            .mla_fp8 = Support::kYes,
            .mla_fp4 = Support::kYes,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes,
            .fp8_e5m2 = false,
            .eager_deepseek_v3_prefill = true,
            .draft_extend_graphs = DraftExtendGraphs::kAlways,
            .plan_kernels = 2,
            .extend_kernels = "flashinfer",
            .verifies_by_decoding = true,
            .mla_rule = {.prefix = MlaPrefix::kExpanded}},
    .create = create_backend<TrtllmMlaBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.generation == GpuGeneration::kBlackwell && selection.mla
                 ? "Blackwell: trtllm_mla is SGLang's default for MLA models"
                 : "";
    },
};

}  // namespace tpsim::attention::backends
