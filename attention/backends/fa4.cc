// FlashAttention 4 (Blackwell): the CuTe DSL kernel; prefill only in SGLang's documentation.
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
#include <stdexcept>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
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
  void plan_decode(const LayerShape&, DecodePlan&) override {
    throw std::logic_error("fa4 plans prefill only");
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
    const auto splits =
        static_cast<std::uint32_t>(std::min<std::uint64_t>({multiprocessors() / tiles, kMaxSplits, steps}));
    if (layer.form == AttentionForm::kMlaExpanded) return;
    if (steps > 4 && splits > 1) plan.kv_chunk = ceil_div(steps, splits) * kStep;
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
            .linear_layers = true,
            .draft_extend_graphs = DraftExtendGraphs::kSinceFlashAttention,
            .plan_kernels = 2,
            // As SGLang 0.5.23 has it on data-center Blackwell; 0.5.12 never absorbed with it.
            .mla_rule = {.prefix = MlaPrefix::kFromThreshold}},
    .create = create_backend<Fa4Backend>,
};

}  // namespace tpsim::attention::backends
