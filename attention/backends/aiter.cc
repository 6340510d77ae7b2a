// AMD's AITER kernels; SGLang's default on ROCm.
//
// Facts from the public sources of aiter (csrc/cpp_itfs/pa/pa_ragged.py, pa_ragged.cpp.jinja: the paged
// attention of decode; Composable Kernel's batch prefill behind mha_batch_prefill_func) and of SGLang's
// aiter_backend.py:
// - decode: partitions of 256 tokens, one block of four waves for each partition and KV head with up to 16 of
//   its query heads in a matrix tile (more are done in turns). A second kernel adds the partitions up,
//   always. The grid is made for the longest context possible; blocks past a request's end return at once. An
//   fp8 cache is dequantised inside;
// - prefill: tiles of 128 query rows of one head, keys and values found through token indices; KV steps of
//   128 tokens (64 for head size 64). Where the cache is fp8 q becomes fp8, too.
// - MLA decodes absorbed, in mla_decode_fwd: query heads padded to tiles of 16 up to 128, each sequence cut
// in
//   up to 16 parts that fill the compute units, and a second kernel that adds them up; prefill always expands
//   its latents (handle_attention_aiter of attention_backend_handler.py). Measured nowhere: the price is
//   MHA's.
// Pages are expanded to tokens. Decode is captured.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class AiterBackend : public PlannedBackend {
  static constexpr std::uint32_t kPartition = 256;  // _AITER_PARTITION_SIZE_ROCM
  static constexpr std::uint32_t kMatrixRows = 16;

 public:
  using PlannedBackend::PlannedBackend;

  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override {
    return extend_cost_with_fp8_queries(layer.fp8_kv(), model, plan, layer);
  }

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    if (layer.form == AttentionForm::kMlaAbsorbed) return plan_mla_decode(layer, plan);
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    plan.rows = ceil_div(group, kMatrixRows) * kMatrixRows;
    plan.blocks_per_split = layer.num_kv_heads;
    plan.merge = true;
    add_decode_items(layer, plan);
    for (DecodeItem& item : plan.items) {
      item.splits = ceil_div(item.split_tokens, kPartition);
      item.split_tokens = std::min(item.split_tokens, kPartition);
    }
  }
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override {
    add_extend_items_by_head(128, layer.head_dim <= 64 ? 64 : 128, layer, plan);
  }

 private:
  void plan_mla_decode(const LayerShape& layer, DecodePlan& plan) {
    constexpr std::uint32_t kMostRows = 128, kMostParts = 16;
    plan.rows = std::min(ceil_div(layer.num_q_heads, kMatrixRows) * kMatrixRows, kMostRows);
    plan.blocks_per_split = ceil_div(layer.num_q_heads, plan.rows);
    const std::uint32_t longest = add_decode_items(layer, plan);
    if (plan.items.empty()) return;
    const auto grid = plan.blocks_per_split * static_cast<std::uint32_t>(plan.items.size());
    const std::uint32_t parts = std::clamp(multiprocessors() / grid, 1U, kMostParts);
    const std::uint32_t part = std::max(1U, ceil_div(longest, parts));
    for (DecodeItem& item : plan.items) {
      item.splits = ceil_div(item.kv_end, part);
      item.split_tokens = std::min(part, item.kv_end);
    }
    plan.merge = true;
  }
};

}  // namespace

extern const BackendDescription aiter = {
    .row = {.name = "aiter",
            .title = "AITER (ROCm)",
            .mha_place = 9,
            .generations = {GpuGeneration::kRocm},
            .has_mha = true,
            .mha_fp8 = Support::kYes,
            .mha_spec = Support::kYes,
            .mha_spec_topk = Support::kYes,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_page_sizes = {1},
            .mla_fp8 = Support::kYes,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes,
            .sinks = true,
            .attention_chunk = true,
            .wide_heads = true,
            .long_context_memory = 0.85,
            .plan_kernels = 2,
            .mla_rule = {.prefix = MlaPrefix::kExpanded, .one_shot = true}},
    .create = create_backend<AiterBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.generation == GpuGeneration::kRocm && !selection.block_sparse &&
                     (!selection.mla || selection.aiter_heads())
                 ? "ROCm: aiter is SGLang's default"
                 : "";
    },
};

}  // namespace tpsim::attention::backends
