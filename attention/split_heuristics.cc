#include "attention/split_heuristics.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "proto/base/ceil_div.h"

namespace tpsim::attention {

std::uint32_t flash_num_splits(std::uint32_t blocks, std::uint32_t multiprocessors, std::uint32_t kv_steps) {
  constexpr std::uint32_t kMaxSplits = 128;
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

std::uint32_t FlashSplits::operator()(std::uint32_t blocks, std::uint32_t kv_steps) {
  if (blocks != blocks_) {
    splits_.fill(0);
    blocks_ = blocks;
  }
  const std::uint32_t steps = std::min(kv_steps, kMost);
  std::uint8_t& splits = splits_[steps];
  if (splits == 0) splits = static_cast<std::uint8_t>(flash_num_splits(blocks, multiprocessors_, steps));
  return splits;
}

std::uint32_t flash3_tile_m(std::uint32_t head_dim) { return head_dim <= 64 ? 192 : 128; }

std::uint32_t flash3_tile_n(std::uint32_t head_dim) {
  if (head_dim <= 128) return 128;
  return head_dim <= 192 ? 96 : 80;
}

void flash3_decode_blocks(const LayerShape& layer, DecodePlan& plan) {
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = layer.head_dim == 128 && group <= 64 ? 64 : flash3_tile_m(layer.head_dim);
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
}

std::uint32_t flash3_steps_per_block(std::uint64_t steps, std::uint32_t multiprocessors) {
  return std::max(1U,
                  static_cast<std::uint32_t>(std::ceil(static_cast<double>(steps) * 1.1 / multiprocessors)));
}

bool flash3_split(std::uint32_t blocks_per_split, std::uint32_t tile_n, FlashSplits& most_splits,
                  std::span<DecodeItem> items) {
  std::uint32_t longest = 0;
  std::uint64_t steps = 0;
  const auto add_up = [&](const auto& steps_of) {
    for (const DecodeItem& item : items) {
      longest = std::max(longest, item.split_tokens);
      steps += steps_of(item.split_tokens);
    }
  };
  // This loop runs at every decode step: most tiles' sizes are powers of two, and a shift is no division.
  if (const int shift = std::countr_zero(tile_n); tile_n == 1U << shift) {
    add_up([&](std::uint32_t tokens) { return (tokens + tile_n - 1) >> shift; });
  } else {
    add_up([&](std::uint32_t tokens) { return ceil_div(tokens, tile_n); });
  }
  // An upper bound first, as if the longest sequence were alone: the others may be short.
  const std::uint32_t most = most_splits(blocks_per_split, ceil_div(longest, tile_n));
  if (most == 1) return false;
  const std::uint32_t per_block =
      flash3_steps_per_block(steps * blocks_per_split, most_splits.multiprocessors());
  const std::uint64_t whole = std::uint64_t{per_block} * tile_n;  // tokens up to which nothing is cut
  bool split = false;
  for (DecodeItem& item : items) {
    if (item.split_tokens <= whole) continue;
    const std::uint32_t item_steps = ceil_div(item.split_tokens, tile_n);
    item.splits = std::min(ceil_div(item_steps, per_block), most);
    item.split_tokens = ceil_div(item_steps, item.splits) * tile_n;
    item.splits = ceil_div(item.kv_end - item.kv_begin, item.split_tokens);
    split = true;
  }
  return split;
}

void split_in_steps(std::uint32_t splits, std::uint32_t step, DecodePlan& plan) {
  if (splits == 1) return;
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    item.split_tokens = std::min(ceil_div(ceil_div(tokens, step), splits) * step, tokens);
    item.splits = ceil_div(tokens, item.split_tokens);
    plan.merge = plan.merge || item.splits > 1;
  }
  plan.merge_in_kernel = plan.merge;
}

std::uint32_t flashinfer_tile_q(double average_packed_len, std::uint32_t head_dim) {
  if (average_packed_len > 64 && head_dim < 256) return 128;
  return average_packed_len > 16 ? 64 : 16;
}

}  // namespace tpsim::attention
