// FlashAttention 4 (Blackwell): the CuTe DSL kernel; prefill only in SGLang's documentation, and its choice
// for both where values are narrower than keys, and beside MiniMax M3's sparse layers.
//
// Facts from the public sources of flash-attention (flash_attn/cute/interface.py: _flash_attn_fwd,
// num_splits_heuristic; flash_fwd_sm100.py) and of SGLang's flashattention_backend.py (fa_impl_ver 4):
// - tiles of 128 query rows and KV steps of 128 tokens; a block works on two tiles at once where the longest
//   request has more than 128 packed rows;
// - the query heads of one KV head are packed into a tile where their number divides 128, otherwise each head
//   has tiles of its own;
// - SGLang passes num_splits 0: the KV of every request is cut into as many parts as leave room for all tiles
//   at once, not at all for up to four steps; parts are added up by a kernel of their own;
// - pages of 128 tokens; q, k and v of 16 bits; sinks are a term of the softmax's denominator.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class Fa4Backend : public PlannedBackend {
  static constexpr std::uint32_t kRows = 128;
  static constexpr std::uint32_t kStep = 128;
  static constexpr std::uint32_t kMaxSplits = 128;

 public:
  using PlannedBackend::PlannedBackend;

 protected:
  // The same kernel, of one query token a request.
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    const bool packed = kRows % group == 0;
    plan.rows = kRows;
    plan.blocks_per_split = packed ? layer.num_kv_heads : layer.num_q_heads;
    const std::uint32_t steps = ceil_div(add_decode_items(layer, plan), kStep);
    const std::uint64_t tiles = std::uint64_t{plan.items.size()} * plan.blocks_per_split;
    if (steps > 4) split_in_steps(splits_of(tiles, steps), kStep, plan);
  }
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override {
    add_extend_items(plan);
    std::uint32_t longest_q = 0;
    std::uint32_t longest_kv = 0;
    for (const ExtendItem& item : plan.items) {
      longest_q = std::max(longest_q, item.q_len);
      longest_kv = std::max(longest_kv, item.prefix + item.q_len);
    }
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    const bool packed = kRows % group == 0;
    const std::uint32_t stages = longest_q * group > kRows ? 2 : 1;
    plan.rows = stages * kRows;
    plan.tile_m = packed ? plan.rows / group : plan.rows;
    plan.head_blocks = packed ? layer.num_kv_heads : layer.num_q_heads;
    plan.tile_n = kStep;
    const std::uint32_t window = layer.sliding_window;
    const std::uint32_t steps =
        ceil_div(window == 0 ? longest_kv : std::min(longest_kv, window + kRows), kStep);
    const std::uint64_t tiles =
        std::uint64_t{plan.items.size()} * layer.num_kv_heads * ceil_div(longest_q * group, plan.rows);
    const std::uint32_t splits = splits_of(tiles, steps);
    if (layer.form == AttentionForm::kMlaExpanded) return;
    if (steps > 4 && splits > 1) plan.kv_chunk = ceil_div(steps, splits) * kStep;
  }

 private:
  std::uint32_t splits_of(std::uint64_t tiles, std::uint32_t steps) const {
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        multiprocessors() / std::max<std::uint64_t>(1, tiles), 1, std::clamp(steps, 1U, kMaxSplits)));
  }
};

}  // namespace

extern const BackendDescription fa4 = {
    .row = {.name = "fa4",
            .title = "FA4 (FlashAttention 4)",
            .mla_title = "FA4",
            .mha_place = 3,
            .mla_place = 7,
            .generations = {GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
            .prefill_only = true,
            .has_mha = true,
            .mha_page_sizes = {128},
            .mha_fp4 = Support::kYes,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_page_sizes = {1},
            .mla_fp4 = Support::kYes,
            .sinks = true,
            .wide_heads = true,
            .narrow_values = true,
            .linear_layers = true,
            .draft_extend_graphs = DraftExtendGraphs::kSinceFlashAttention,
            .plan_kernels = 2,
            // As SGLang 0.5.23 has it on data-center Blackwell; 0.5.12 never absorbed with it.
            .mla_rule = {.prefix = MlaPrefix::kFromThreshold}},
    .create = create_backend<Fa4Backend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      if (selection.generation != GpuGeneration::kBlackwell) return "";
      if (selection.block_sparse && !selection.fp8_e4m3_named)
        return "MiniMax M3 on Blackwell: fa4 is SGLang's default";
      return selection.narrow_values
                 ? "values narrower than keys, which trtllm_mha does not take: fa4 is SGLang's default on "
                   "SM100"
                 : "";
    },
};

}  // namespace tpsim::attention::backends
