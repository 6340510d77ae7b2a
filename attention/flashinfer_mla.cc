#include "attention/flashinfer_mla.h"

#include <algorithm>

#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention {
namespace {}  // namespace

void plan_flashinfer_mla_extend(const proto::HardwareProfile& profile, const LayerShape& layer,
                                ExtendPlan& plan) {
  const std::uint32_t heads = layer.num_q_heads;
  std::uint64_t tokens = 0;
  for (const ExtendItem& item : plan.items) tokens += item.q_len;
  if (layer.form == AttentionForm::kMlaExpanded) {  // heads are not packed
    plan.head_blocks = heads;
    plan.rows = plan.tile_m =
        profile.architecture() == "blackwell" ? 256  // two tiles of 128 query tokens
        : profile.architecture() == "hopper"
            ? 128
            : flashinfer_tile_q(double(tokens) / double(plan.items.size()), layer.head_dim);
    plan.tile_n = profile.architecture() == "blackwell" || profile.architecture() == "hopper" ? 128 : 64;
    return;
  }
  constexpr std::uint32_t kTile = 64;
  const std::uint32_t cluster = tokens * heads / plan.items.size() > kTile ? 2 : 1;
  plan.rows = kTile * cluster;
  plan.tile_m = std::max(1U, plan.rows / heads);
  plan.tile_n = kTile;
  plan.head_blocks = ceil_div(heads, plan.rows);
  plan.widens_kv = layer.widens_latent();
  std::uint64_t total = 0;
  for (const ExtendItem& item : plan.items) total += tile_tokens(plan, item, 0);
  plan.kv_chunk = flashinfer_mla_part(total * plan.head_blocks, profile.multiprocessors() / cluster);
}

void FlashInferMlaBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  add_extend_items(plan);
  plan_flashinfer_mla_extend(profile(), layer, plan);
}

// The kernel that builds the page table, and the one that plans.
KernelCost FlashInferMlaBackend::plan_cost() const { return small_kernels(2); }

}  // namespace tpsim::attention
