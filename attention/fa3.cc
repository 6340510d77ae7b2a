#include "attention/fa3.h"

#include <algorithm>
#include <cmath>

namespace tpsim::attention {
namespace {

constexpr std::uint32_t kMaxSplits = 128;

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

bool widens(const LayerShape& layer) {
  return layer.form == AttentionForm::kMlaAbsorbed && layer.kv_element_bytes() < layer.q_bytes;
}

}  // namespace

Fa3Backend::Fa3Backend(const proto::HardwareProfile& profile, std::uint32_t page_size)
    : PlannedBackend("fa3", profile, page_size) {}

std::uint32_t Fa3Backend::tile_m(const LayerShape& layer) {
  if (layer.form == AttentionForm::kMlaAbsorbed) return 64;
  return layer.head_dim <= 64 ? 192 : 128;
}

std::uint32_t Fa3Backend::tile_n(const LayerShape& layer) {
  if (layer.form == AttentionForm::kMlaAbsorbed) return 64;
  if (layer.head_dim <= 128 || layer.form == AttentionForm::kMlaExpanded) return 128;
  return layer.head_dim <= 192 ? 96 : 80;
}

std::uint32_t Fa3Backend::num_splits(std::uint32_t blocks, std::uint32_t multiprocessors,
                                     std::uint32_t kv_steps) {
  // Nearly full without splitting, or too short to split.
  if (blocks >= 0.8 * multiprocessors || kv_steps <= 4) return 1;
  const std::uint32_t most = std::min({kMaxSplits, multiprocessors, kv_steps});
  double best = 0;
  const auto fill = [&](std::uint32_t splits) {
    const double waves = double(blocks) * splits / multiprocessors;
    return waves / std::ceil(waves);
  };
  for (std::uint32_t splits = 1; splits <= most; ++splits) best = std::max(best, fill(splits));
  for (std::uint32_t splits = 1; splits <= most; ++splits) {
    if (fill(splits) >= 0.85 * best) return splits;
  }
  return 1;
}

// flash_prepare_scheduler: as many KV steps in a block as fill the device once, with a tenth to spare.
std::uint32_t Fa3Backend::steps_per_block(std::uint64_t steps) const {
  return std::max(
      1U, static_cast<std::uint32_t>(std::ceil(static_cast<double>(steps) * 1.1 / multiprocessors())));
}

void Fa3Backend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t step = tile_n(layer);
  // The query heads of a KV head are packed into the rows of one tile (pack_gqa); up to 64 rows of 128-wide
  // heads take the kernel with one matrix warpgroup.
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = layer.head_dim == 128 && group <= 64 ? 64 : tile_m(layer);
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
  plan.widens_kv = widens(layer);
  std::uint32_t longest = 0;
  std::uint64_t steps = 0;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    plan.items.push_back(decode_item(i, lengths[i], layer));
    const std::uint32_t tokens = plan.items.back().split_tokens;
    longest = std::max(longest, tokens);
    steps += ceil_div(tokens, step);
  }
  // An upper bound first, as if the longest sequence were alone: the others may be short.
  const std::uint32_t most = num_splits(plan.blocks_per_split, multiprocessors(), ceil_div(longest, step));
  if (most == 1) return;
  const std::uint32_t per_block = steps_per_block(steps * plan.blocks_per_split);
  for (DecodeItem& item : plan.items) {
    const std::uint32_t item_steps = ceil_div(item.split_tokens, step);
    item.splits = std::clamp(ceil_div(item_steps, per_block), 1U, most);
    if (item.splits == 1) continue;
    item.split_tokens = ceil_div(item_steps, item.splits) * step;
    item.splits = ceil_div(item.kv_end - item.kv_begin, item.split_tokens);
    plan.merge = true;
  }
}

void Fa3Backend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = tile_m(layer);
  plan.tile_m = std::max(1U, plan.rows / group);  // packed, as in every batch of unequal lengths
  plan.head_blocks = layer.num_kv_heads * ceil_div(group, plan.rows);
  plan.tile_n = tile_n(layer);
  add_extend_items(plan);
  if (layer.form == AttentionForm::kMlaExpanded) return;
  plan.widens_kv = widens(layer);
  // Split as in decode. The scheduler counts every tile with the request's whole KV, causal or not.
  std::uint64_t steps = 0;
  std::uint32_t longest = 0;
  for (const ExtendItem& item : plan.items) {
    std::uint32_t reach = item.prefix + item.q_len;
    if (layer.sliding_window != 0) reach = std::min(reach, layer.sliding_window + plan.tile_m);
    longest = std::max(longest, reach);
    steps += std::uint64_t{ceil_div(item.q_len, plan.tile_m)} * ceil_div(reach, plan.tile_n);
  }
  const std::uint32_t longest_steps = ceil_div(longest, plan.tile_n);
  const std::uint32_t most = num_splits(plan.head_blocks, multiprocessors(), longest_steps);
  const std::uint32_t per_block =
      std::max(steps_per_block(steps * plan.head_blocks), ceil_div(longest_steps, most));
  if (per_block < longest_steps) plan.kv_chunk = per_block * plan.tile_n;
}

// Page table, cumulative lengths, and the kernel that decides the splits: three small kernels a pass.
KernelCost Fa3Backend::plan_cost() const { return {3 * 2e-6, 0, 0, 3}; }

}  // namespace tpsim::attention
