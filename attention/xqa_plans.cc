#include "attention/xqa_plans.h"

#include <algorithm>
#include <cmath>

#include "proto/base/ceil_div.h"

namespace tpsim::attention {
namespace {

std::uint32_t round_up(std::uint32_t a, std::uint32_t unit) { return ceil_div(a, unit) * unit; }

bool hopper_fp8(const LayerShape& layer, GpuGeneration generation) {
  return generation == GpuGeneration::kHopper && layer.fp8_kv() && layer.head_dim <= 256;
}

}  // namespace

void plan_xqa_decode(const LayerShape& layer, GpuGeneration generation, std::uint32_t multiprocessors,
                     DecodePlan& plan) {
  const bool fp8 = hopper_fp8(layer, generation);
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = round_up(group, fp8 ? 8 : 16);
  plan.blocks_per_split = layer.num_kv_heads;
  const auto grid = plan.blocks_per_split * static_cast<std::uint32_t>(plan.items.size());
  const std::uint32_t room = multiprocessors * 3 / grid;  // a whole number
  const std::uint32_t filling =
      fp8 ? static_cast<std::uint32_t>(std::lround(0.25 * room)) : multiprocessors / grid;
  const std::uint32_t splits = std::max(1U, filling);
  const std::uint32_t step = fp8 ? 64 : 256;
  if (splits == 1) return;
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    item.split_tokens = std::min(ceil_div(ceil_div(tokens, step), splits) * step, tokens);
    item.splits = ceil_div(tokens, item.split_tokens);
    plan.merge = plan.merge || item.splits > 1;
  }
  plan.merge_in_kernel = plan.merge;
}

void set_fmha_v2_tiles(const LayerShape& layer, GpuGeneration generation, ExtendPlan& plan) {
  constexpr std::uint32_t kRows = 64;
  if (generation != GpuGeneration::kHopper) {
    plan.rows = plan.tile_m = plan.tile_n = kRows;
    return;
  }
  plan.rows = plan.tile_m = 2 * kRows;
  const std::uint32_t wide = layer.fp8_kv() ? 128 : 64;  // head size up to which the widest step fits
  plan.tile_n = layer.head_dim <= wide ? 256 : layer.fp8_kv() || layer.head_dim <= 128 ? 128 : 64;
}

}  // namespace tpsim::attention
