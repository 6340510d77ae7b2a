// Rules for splits that several libraries share.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/layer_shape.h"
#include "attention/plan.h"

namespace tpsim::attention {

// FlashAttention's num_splits_heuristic (hopper/heuristics.h; FlashAttention 2 has the same): most KV splits
// of a sequence that has the device to itself, with `blocks` thread blocks without splitting and `kv_steps`
// steps of the loop over KV. It remembers what it worked out: every step asks.
class FlashSplits {
 public:
  explicit FlashSplits(std::uint32_t multiprocessors) : multiprocessors_(multiprocessors) {}
  std::uint32_t operator()(std::uint32_t blocks, std::uint32_t kv_steps);
  std::uint32_t multiprocessors() const { return multiprocessors_; }

 private:
  static constexpr std::uint32_t kMost = 128;       // more steps than splits change nothing
  using Row = std::array<std::uint8_t, kMost + 1>;  // by steps; all 0: not worked out yet
  void fill(std::uint32_t blocks, Row& row) const;

  std::uint32_t multiprocessors_;
  std::vector<Row> rows_;  // by blocks
};

// FlashAttention 3's tiles (tile_size.h): query rows, and KV tokens of one step, by head size.
std::uint32_t flash3_tile_m(std::uint32_t head_dim);
std::uint32_t flash3_tile_n(std::uint32_t head_dim);
// Its decode packs the query heads of a KV head into the rows of one tile (pack_gqa); up to 64 rows of
// 128-wide heads take the kernel with one matrix warpgroup. Sets rows and blocks_per_split.
void flash3_decode_blocks(const LayerShape& layer, DecodePlan& plan);
// How one decode call splits `items`, which are whole so far (split_tokens tokens each; empty ones stay): at
// most as the longest would if it were alone (hopper/heuristics.h), then as many steps in a block as fill the
// device once, with a tenth to spare (flash_prepare_scheduler.cu). True where any is split.
bool flash3_split(std::uint32_t blocks_per_split, std::uint32_t tile_n, FlashSplits& most_splits,
                  std::span<DecodeItem> items);
// The same of whole sequences, in sums over their lengths.
bool flash3_totals(std::uint32_t blocks_per_split, std::uint32_t tile_n, FlashSplits& most_splits,
                   std::span<const std::uint32_t> seq_lens, DecodeTotals& totals);
// KV steps of one block, of `steps` over all blocks.
std::uint32_t flash3_steps_per_block(std::uint64_t steps, std::uint32_t multiprocessors);

// Every item of the plan in at most `splits` (at least 1) equal parts of whole steps of `step` tokens.
void split_in_steps(std::uint32_t splits, std::uint32_t step, DecodePlan& plan);

}  // namespace tpsim::attention
