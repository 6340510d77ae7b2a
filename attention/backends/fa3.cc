// FlashAttention 3 (Hopper): paged variable-length kernel, the default of SGLang on Hopper. On Ampere and Ada
// its MHA kernels run, too, where a user names it (attention_registry.py), in the tiles of tile_size_fwd_sm8x
// and not in fp8.
//
// Facts from the public sources of flash-attention (hopper/heuristics.h, tile_size.h,
// flash_prepare_scheduler.cu) and of SGLang's flashattention_backend.py: query tiles of 128 rows (192 for
// head size 64), KV steps by head size; decode packs the query heads of one KV head into a tile; the number
// of KV splits comes from how far the blocks of the longest sequence fill the multiprocessors, and is then
// lowered per request by a small kernel that runs before the attention.
//
// Drafts are verified as an extend after a cached prefix. A tree of them is a cascade: the extend kernel
// over the prefix without causal mask, a block for every draft over its ancestors, and a kernel that merges
// both (flashattention_backend.py, use_cascade_attn).
//
// MLA: the absorbed kernel multiplies the rotated 64 elements and, as a second product, the latent (its
// `qv`), in tiles of 64 by 64; a cache of another width than the queries is widened as a whole before every
// call. The un-absorbed kernel reads dense keys and values and is never split (flashattention_backend.py).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

// The absorbed kernel's tiles (tile_size.h, head size 64 with values of 512) are square.
constexpr std::uint32_t kAbsorbedTile = 64;

// Query rows of a tile before Hopper, and KV tokens of a step there, of a paged batch of unequal lengths.
constexpr std::uint32_t kOldRows = 128;
std::uint32_t old_tile_n(const LayerShape& layer, GpuGeneration generation) {
  if (layer.head_dim <= 64) return 80;
  if (layer.head_dim <= 96) return 48;
  if (layer.head_dim <= 128) return layer.sliding_window != 0 ? 96 : 112;
  return layer.head_dim > 192 && generation == GpuGeneration::kAda ? 48 : 64;
}

class Fa3Backend : public PlannedBackend {
 public:
  using PlannedBackend::PlannedBackend;

  bool cascades() const override { return true; }

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  bool sum_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;
  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;

 private:
  bool before_hopper() const {
    return generation() == GpuGeneration::kAmpere || generation() == GpuGeneration::kAda;
  }
  void decode_blocks(const LayerShape& layer, DecodePlan& plan) const;
  std::uint32_t tile_m(const LayerShape& layer) const;
  std::uint32_t tile_n(const LayerShape& layer) const;
  FlashSplits most_splits_{multiprocessors()};
};

std::uint32_t Fa3Backend::tile_m(const LayerShape& layer) const {
  if (layer.form == AttentionForm::kMlaAbsorbed) return kAbsorbedTile;
  return before_hopper() ? kOldRows : flash3_tile_m(layer.head_dim);
}

std::uint32_t Fa3Backend::tile_n(const LayerShape& layer) const {
  if (layer.form == AttentionForm::kMlaAbsorbed) return kAbsorbedTile;
  if (before_hopper()) return old_tile_n(layer, generation());
  return layer.form == AttentionForm::kMlaExpanded ? 128 : flash3_tile_n(layer.head_dim);
}

void Fa3Backend::decode_blocks(const LayerShape& layer, DecodePlan& plan) const {
  flash3_decode_blocks(layer, plan);
  if (before_hopper()) {
    plan.rows = kOldRows;
    plan.blocks_per_split =
        layer.num_kv_heads * ceil_div(ceil_div(layer.num_q_heads, layer.num_kv_heads), kOldRows);
  }
  if (layer.form == AttentionForm::kMlaAbsorbed) {
    plan.rows = kAbsorbedTile;
    plan.blocks_per_split = ceil_div(layer.num_q_heads, plan.rows);
    plan.widens_kv = layer.widens_latent();
  }
}

bool Fa3Backend::sum_decode(const LayerShape& layer, DecodePlan& plan) {
  if (layer.sliding_window != 0 || layer.attention_chunk != 0) return false;
  decode_blocks(layer, plan);
  plan.merge = flash3_totals(plan.blocks_per_split, tile_n(layer), most_splits_, metadata().decode_seq_lens,
                             plan.totals.emplace());
  return true;
}

void Fa3Backend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  decode_blocks(layer, plan);
  add_decode_items(layer, plan);
  plan.merge = flash3_split(plan.blocks_per_split, tile_n(layer), most_splits_, plan.items);
}

void Fa3Backend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = tile_m(layer);
  plan.tile_m = std::max(1U, plan.rows / group);  // packed, as in every batch of unequal lengths
  plan.head_blocks = layer.num_kv_heads * ceil_div(group, plan.rows);
  plan.tile_n = tile_n(layer);
  const std::uint32_t most_queries = add_extend_items(plan);
  if (layer.form == AttentionForm::kMlaExpanded) return;
  plan.widens_kv = layer.widens_latent();
  // Split as in decode, at most as the most queries of a request would be after the longest KV if they were
  // alone: a chunk that fills the device by itself leaves the decoding requests beside it whole. The
  // scheduler counts every tile with the request's whole KV, causal or not.
  std::uint64_t steps = 0;
  std::uint32_t longest = 0;
  for (const ExtendItem& item : plan.items) {
    std::uint32_t reach = item.prefix + item.q_len;
    if (layer.sliding_window != 0) reach = std::min(reach, layer.sliding_window + plan.tile_m);
    longest = std::max(longest, reach);
    steps += std::uint64_t{ceil_div(item.q_len, plan.tile_m)} * ceil_div(reach, plan.tile_n);
  }
  const std::uint32_t longest_steps = ceil_div(longest, plan.tile_n);
  const std::uint32_t most =
      most_splits_(plan.head_blocks * ceil_div(most_queries, plan.tile_m), longest_steps);
  const std::uint32_t per_block = std::max(
      flash3_steps_per_block(steps * plan.head_blocks, multiprocessors()), ceil_div(longest_steps, most));
  if (per_block < longest_steps) plan.kv_chunk = per_block * plan.tile_n;
  // A kernel that may split is followed by the one that merges, with blocks for the most queries of every
  // request (flash_fwd_combine.h): rows of 64 or 128 elements, 16 or 8 of them.
  if (most > 1) {
    const std::uint32_t rows = layer.v_head_dim <= 64 ? 16 : 8;
    plan.merge_blocks = double(ceil_div(most_queries * layer.num_q_heads, rows)) *
                        ceil_div(layer.v_head_dim, 128U) * static_cast<double>(plan.items.size());
  }
  if (!metadata().tree_mask) return;
  plan.prefix_rows = plan.rows;
  plan.prefix_tile_m = plan.tile_m;
  plan.prefix_head_blocks = plan.head_blocks;
  plan.prefix_chunk = plan.kv_chunk;
  plan.kv_chunk = 0;
  plan.tile_m = 1;
}

// For an fp8 cache SGLang rounds the queries to fp8, too, in a kernel of its own, unless heads are wider than
// 256 (flashattention_backend.py, forward_extend and forward_decode).
bool rounds_queries(const LayerShape& layer) {
  constexpr std::uint32_t kWidest = 256;
  return layer.form == AttentionForm::kMha && layer.fp8_kv() && layer.head_dim <= kWidest;
}

KernelCost Fa3Backend::decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) {
  KernelCost cost = model.decode(plan, layer);  // measured with that kernel
  if (rounds_queries(layer) && cost.launches > 0) ++cost.launches;
  return cost;
}

KernelCost Fa3Backend::extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) {
  return extend_cost_with_fp8_queries(rounds_queries(layer), model, plan, layer);
}

}  // namespace

extern const BackendDescription fa3 = {
    .row = {.name = "fa3",
            .title = "FA3 (FlashAttention 3)",
            .mha_place = 2,
            .mla_place = 5,
            .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper},
            .mla_generations = {GpuGeneration::kHopper},
            .has_mha = true,
            .mha_fp8 = Support::kYes,
            .mha_spec = Support::kYes,
            .mha_spec_topk = Support::kYes,
            .sliding_window = Support::kYes,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes,
            .mla_spec_topk = Support::kPageSizeOneOnly,
            .sinks = true,
            .attention_chunk = true,
            .local_attention = true,
            .narrow_values = true,
            .fp8_e5m2 = false,
            .draft_extend_graphs = DraftExtendGraphs::kSinceFlashAttention,
            .fresh_decode = FreshDecode::kMetadata,
            .no_fp8_prefill = {GpuGeneration::kAmpere, GpuGeneration::kAda},
            .no_fp8_decode = {GpuGeneration::kAmpere, GpuGeneration::kAda},
            .pages_of_blocks = true,
            .plan_kernels = 3,
            .mla_rule = {.prefix = MlaPrefix::kFromThreshold, .one_shot = true},
            .beside_host_kernels = BesideHostKernels::kReplaced},
    .create = create_backend<Fa3Backend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      constexpr GpuGenerations kOlder = {GpuGeneration::kAmpere, GpuGeneration::kAda};
      if (selection.no_flashinfer && kOlder.contains(selection.generation))
        return "fa3 is SGLang's default from Ampere on for a class that may not have flashinfer";
      const bool tree = selection.spec_topk > 1 && selection.spec_topk_given;
      return selection.generation == GpuGeneration::kHopper && (selection.mla || !tree)
                 ? "Hopper with CUDA 12.3 or later: fa3 is SGLang's default for MHA and MLA models"
                 : "";
    },
};

}  // namespace tpsim::attention::backends
