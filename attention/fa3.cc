#include "attention/fa3.h"

#include <algorithm>
#include <cmath>

namespace tpsim::attention {
namespace {

constexpr std::uint32_t kMaxSplits = 128;

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

Fa3Backend::Fa3Backend(const proto::HardwareProfile& profile, std::uint32_t page_size)
    : PlannedBackend("fa3", profile, page_size) {}

std::uint32_t Fa3Backend::tile_m(std::uint32_t head_dim) { return head_dim <= 64 ? 192 : 128; }

std::uint32_t Fa3Backend::tile_n(std::uint32_t head_dim) {
  if (head_dim <= 128) return 128;
  return head_dim <= 192 ? 96 : 64;
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
  const std::uint32_t step = tile_n(layer.head_dim);
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  const std::uint32_t q_blocks = ceil_div(group, tile_m(layer.head_dim));
  plan.blocks_per_split = layer.num_kv_heads * q_blocks;
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
  const std::uint32_t per_block = steps_per_block(steps * layer.num_kv_heads);
  for (DecodeItem& item : plan.items) {
    const std::uint32_t item_steps = ceil_div(item.split_tokens, step);
    item.splits = std::clamp(ceil_div(item_steps, per_block), 1U, most);
    item.split_tokens = ceil_div(item_steps, item.splits) * step;
    item.splits = ceil_div(item.kv_end - item.kv_begin, item.split_tokens);
    plan.merge = plan.merge || item.splits > 1;
  }
}

void Fa3Backend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  // Ragged batches pack the query heads of a KV head; few tiles behind a long prefix are split as in decode.
  pack_heads(tile_m(layer.head_dim), layer, plan);
  plan.tile_n = tile_n(layer.head_dim);
  add_extend_items(plan);
  const ExtendSize size = extend_size(plan, layer);
  const std::uint32_t columns = ceil_div(layer.num_q_heads, plan.packed_heads);
  const std::uint32_t steps = ceil_div(size.longest, plan.tile_n);
  const std::uint32_t most = num_splits(columns, multiprocessors(), steps);
  plan.splits =
      std::clamp(ceil_div(steps, steps_per_block(size.kv_tokens / plan.tile_n * columns)), 1U, most);
}

// Page table, cumulative lengths, and the kernel that decides the splits: three small kernels a pass.
KernelCost Fa3Backend::plan_cost() const { return {3 * 2e-6, 0, 0, 3}; }

}  // namespace tpsim::attention
