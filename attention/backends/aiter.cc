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
            .sinks = true,
            .attention_chunk = true,
            .wide_heads = true,
            .long_context_memory = 0.85,
            .plan_kernels = 2},
    .create = create_backend<AiterBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.generation == GpuGeneration::kRocm ? "ROCm: aiter is SGLang's default" : "";
    },
};

}  // namespace tpsim::attention::backends
