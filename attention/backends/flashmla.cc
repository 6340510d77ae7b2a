// FlashMLA (Hopper): absorbed decode over pages of 64 latents; everything else as flashinfer.
//
// As many thread blocks as multiprocessors decode, each a run of the batch's KV in blocks of 64 tokens of
// equal cost, where each request costs five blocks more; a request is cut where a run ends. With an fp8 cache
// the queries are quantised, too.
//
// Source: SGLang's flashmla_backend.py; get_mla_metadata of FlashMLA (csrc/smxx/get_mla_metadata.cu), as in
// SGLang's kernel library 0.4.2.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/backends/flashinfer_mla.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class FlashMlaBackend : public FlashInferMlaBackend {
 public:
  using FlashInferMlaBackend::FlashInferMlaBackend;

  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override {
    LayerShape quantised = layer;
    if (layer.fp8_kv()) quantised.q_bytes = 1;
    return model.decode(plan, quantised);
  }

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    constexpr std::uint32_t kBlock = 64;    // KV tokens of a block, and heads of a tile
    constexpr std::uint32_t kOverhead = 5;  // blocks
    plan.rows = kBlock;
    plan.blocks_per_split = ceil_div(layer.num_q_heads, kBlock);
    plan.merge = true;  // the combining kernel always runs
    add_decode_items(layer, plan);
    const std::uint32_t runs = std::max(1U, multiprocessors() / plan.blocks_per_split);
    std::uint32_t total = 0;
    for (const DecodeItem& item : plan.items) total += ceil_div(item.kv_end, kBlock) + kOverhead;
    const std::uint32_t payload = std::max(ceil_div(total, runs) + kOverhead, 2 * kOverhead);
    plan.busiest_block = std::uint64_t{payload} * kBlock;
    const std::uint32_t whole = payload - kOverhead;  // blocks of a run that holds nothing else
    std::uint32_t left = payload;                     // of the run
    for (DecodeItem& item : plan.items) {
      std::uint32_t rest = ceil_div(item.kv_end, kBlock);
      if (left >= rest + kOverhead) {
        left -= rest + kOverhead;
        continue;
      }
      const std::uint32_t first = left > kOverhead ? left - kOverhead : whole;
      if (first < rest) {
        rest -= first;
        item.first_tokens = first * kBlock;
        item.split_tokens = std::min(whole * kBlock, item.kv_end);
        item.splits = 1 + ceil_div(rest, whole);
        rest -= (item.splits - 2) * whole;
      }
      left = payload - rest - kOverhead;
    }
  }
};

}  // namespace

extern const BackendDescription flashmla = {
    .row =
        {.name = "flashmla",
         .title = "FlashMLA",
         .mla_place = 2,
         .generations = {GpuGeneration::kHopper},
         .has_mla = true,
         .mla_page_sizes = {64},
         .mla_fp8 = Support::kYes,
         .mla_fp4 = Support::kYes,
         .mla_chunked_prefix = Support::kYes,
         .mla_spec = Support::kYes,
         .draft_extend_graphs = DraftExtendGraphs::kSinceFlashAttentionInV1,
         .plan_kernels = 2,
         .extend_kernels = "flashinfer",
         .verifies_by_decoding = true,
         .mla_rule = {.prefix = MlaPrefix::kFromThreshold, .one_shot = true, .ragged = true, .joins = true}},
    .create = create_backend<FlashMlaBackend>,
};

}  // namespace tpsim::attention::backends
