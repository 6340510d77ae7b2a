#include "attention/mla_plans.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

namespace tpsim::attention {
namespace {

std::uint32_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

void add_whole(std::span<const std::uint32_t> seq_lens, DecodePlan& plan) {
  for (std::uint32_t i = 0; i < seq_lens.size(); ++i)
    plan.items.push_back({i, 0, seq_lens[i], 1, seq_lens[i]});
}

}  // namespace

void plan_flashmla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                          std::uint32_t multiprocessors, DecodePlan& plan) {
  constexpr std::uint32_t kBlock = 64;    // KV tokens of a block, and heads of a tile
  constexpr std::uint32_t kOverhead = 5;  // blocks
  plan.rows = kBlock;
  plan.blocks_per_split = ceil_div(heads, kBlock);
  plan.merge = true;  // the combining kernel always runs
  const std::uint32_t runs = std::max(1U, multiprocessors / plan.blocks_per_split);
  std::uint64_t total = 0;
  for (const std::uint32_t length : seq_lens) total += ceil_div(length, kBlock) + kOverhead;
  const std::uint32_t payload = std::max(ceil_div(total, runs) + kOverhead, 2 * kOverhead);
  plan.busiest_block = std::uint64_t{payload} * kBlock;
  std::uint32_t left = payload;  // of the run
  for (std::uint32_t i = 0; i < seq_lens.size(); ++i) {
    const std::uint32_t blocks = ceil_div(seq_lens[i], kBlock);
    DecodeItem item{i, 0, seq_lens[i], 1, seq_lens[i]};
    if (left >= blocks + kOverhead) {
      left -= blocks + kOverhead;
    } else {
      const std::uint32_t whole = payload - kOverhead;  // blocks of a run that holds nothing else
      const std::uint32_t first = left > kOverhead ? left - kOverhead : whole;
      std::uint32_t rest = blocks;
      if (first < blocks) {
        rest -= first;
        item.first_tokens = first * kBlock;
        item.split_tokens = std::min(whole * kBlock, seq_lens[i]);
        item.splits = 1 + ceil_div(rest, whole);
        rest -= (item.splits - 2) * whole;
      }
      left = payload - rest - kOverhead;
    }
    plan.items.push_back(item);
  }
}

std::uint32_t flashinfer_mla_part(std::uint64_t total, std::uint32_t clusters) {
  const std::uint32_t share = std::max(1U, ceil_div(total, clusters));
  if (share <= 8) return 32;
  if (share <= 16) return 64;
  if (share <= 32) return 128;
  if (share <= 64) return 192;
  return ceil_div(share, 256) * 256;
}

void plan_flashinfer_mla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                                std::uint32_t multiprocessors, DecodePlan& plan) {
  constexpr std::uint32_t kTile = 64;
  const std::uint32_t cluster = heads > kTile ? 2 : 1;
  const std::uint32_t clusters = multiprocessors / cluster;
  const std::uint32_t tiles = ceil_div(heads, kTile * cluster);  // of a request
  plan.rows = kTile;
  plan.blocks_per_split = tiles * cluster;
  std::uint64_t total = 0;
  for (const std::uint32_t length : seq_lens) total += std::uint64_t{tiles} * length;
  const std::uint32_t part = flashinfer_mla_part(total, clusters);
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> load;
  for (std::uint32_t i = 0; i < clusters; ++i) load.push(0);
  std::uint64_t busiest = 0;
  for (std::uint32_t i = 0; i < seq_lens.size(); ++i) {
    const std::uint32_t length = seq_lens[i];
    const std::uint32_t splits = std::max(1U, ceil_div(length, part));
    plan.items.push_back({i, 0, length, splits, std::min(part, length)});
    plan.merge = plan.merge || splits > 1;
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
      for (std::uint32_t at = 0; at < length; at += part) {
        // A part costs twice its query rows and its KV tokens (cost_function of the planner).
        const std::uint64_t tokens =
            load.top() + std::min(part, length - at) + std::uint64_t{2} * kTile * cluster;
        load.pop();
        load.push(tokens);
        busiest = std::max(busiest, tokens);
      }
    }
  }
  plan.busiest_block = busiest;
}

void plan_trtllm_mla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                            std::uint32_t multiprocessors, DecodePlan& plan) {
  constexpr std::uint32_t kStep = 128;
  constexpr std::uint32_t kFewHeads = 32;  // up to here the kernel with narrow tiles
  plan.rows = heads <= 8 ? 8 : heads <= kFewHeads ? 16 : 64;
  plan.blocks_per_split = ceil_div(heads, plan.rows);
  const std::uint32_t longest = *std::max_element(seq_lens.begin(), seq_lens.end());
  const std::uint64_t blocks = std::uint64_t{plan.blocks_per_split} * seq_lens.size();
  const std::uint32_t most =
      std::min(ceil_div(longest, 2 * kStep),
               static_cast<std::uint32_t>(std::max<std::uint64_t>(1, multiprocessors / blocks)));
  const std::uint32_t part = ceil_div(ceil_div(longest, most), kStep) * kStep;
  for (std::uint32_t i = 0; i < seq_lens.size(); ++i) {
    const std::uint32_t splits = std::max(1U, ceil_div(seq_lens[i], part));
    plan.items.push_back({i, 0, seq_lens[i], splits, std::min(part, seq_lens[i])});
  }
  plan.merge = most > 1;
}

void plan_cutlass_mla_decode(std::span<const std::uint32_t> seq_lens, DecodePlan& plan) {
  plan.rows = 64;
  plan.blocks_per_split = 2;
  add_whole(seq_lens, plan);
}

}  // namespace tpsim::attention
