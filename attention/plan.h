// What a kernel would run for one batch: the plan that a backend makes and that its cost is computed from.
#pragma once

#include <cstdint>
#include <vector>

namespace tpsim::attention {

// The decode of one request in one layer: KV tokens [kv_begin, kv_end), cut into `splits` parts of
// split_tokens tokens (the last may be shorter). Each part is one thread block per KV head and head block.
struct DecodeItem {
  std::uint32_t request = 0;  // position in the batch
  std::uint32_t kv_begin = 0;
  std::uint32_t kv_end = 0;
  std::uint32_t splits = 1;
  std::uint32_t split_tokens = 0;
};

struct DecodePlan {
  std::vector<DecodeItem> items;
  std::uint32_t blocks_per_split = 0;  // thread blocks: KV heads x blocks of query heads
  bool merge = false;                  // a second pass adds up the parts
  void clear() {
    items.clear();
    blocks_per_split = 0;
    merge = false;
  }
};

// The extend of one request: query rows [0, q_len) behind `prefix` cached tokens, in tiles of the plan's
// tile_m rows; the tile from row r on reads KV [max(0, prefix + r + 1 - window), prefix + min(r + tile_m,
// q_len)).
struct ExtendItem {
  std::uint32_t request = 0;
  std::uint32_t prefix = 0;
  std::uint32_t q_len = 0;
};

struct ExtendPlan {
  std::vector<ExtendItem> items;
  std::uint32_t tile_m = 128;      // query tokens of a thread block
  std::uint32_t tile_n = 128;      // KV tokens of one step of its loop
  std::uint32_t packed_heads = 1;  // query heads of one KV head that share a block
  std::uint32_t rows = 128;        // rows of a block's matrices: at least tile_m x packed_heads
  std::uint32_t splits = 1;        // parts of a tile's KV range, each a block of its own, added up afterwards
  void clear() { items.clear(); }
};

// KV tokens that the tile from row `row` on reads, rounded up to whole steps of tile_n.
struct TileRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};
TileRange tile_range(const ExtendPlan& plan, const ExtendItem& item, std::uint32_t row, std::uint32_t window);

}  // namespace tpsim::attention
