// What a kernel would run for one batch: the plan that a backend makes and that its cost is computed from,
// and what corrections see of it.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "attention/layer_shape.h"
#include "proto/coefficients.h"

namespace tpsim::attention {

// The decode of one request in one layer: KV tokens [kv_begin, kv_end), cut into `splits` parts of
// split_tokens tokens (the last may be shorter). Each part is blocks_per_split thread blocks.
struct DecodeItem {
  std::uint32_t request = 0;  // position in the batch
  std::uint32_t kv_begin = 0;
  std::uint32_t kv_end = 0;
  std::uint32_t splits = 1;
  std::uint32_t split_tokens = 0;
  std::uint32_t first_tokens = 0;  // of the first part, where it is shorter than the others; 0: it is not
};

// What the items of a decode add up to; lengths in KV tokens.
struct DecodeTotals {
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;
  std::uint64_t parts = 0;
  std::uint32_t longest = 0;
  std::uint32_t longest_part = 0;
  std::uint32_t most_parts = 1;  // of one request
};

struct DecodePlan {
  std::vector<DecodeItem> items;
  std::optional<DecodeTotals> totals;  // of a plan that is only priced: it then has no items
  std::uint32_t blocks_per_split = 0;  // thread blocks: KV heads x blocks of query heads
  std::uint32_t rows = 1;              // query rows that a block's arithmetic is done for, padding included
  std::uint32_t resident = 1;          // thread blocks that find room on a multiprocessor at once
  bool tensor_cores = true;
  bool merge = false;            // a second pass adds up the parts
  bool merge_in_kernel = false;  // … by the last thread block of a request, without a launch of its own
  // A persistent kernel has as many thread blocks as fit the device, each of which reads several parts one
  // after another: KV tokens of the busiest, what a part costs besides its tokens included. 0: a block for
  // each part.
  std::uint64_t busiest_block = 0;
  // Parts that blocks are launched for, empty ones included, of every request; 0: its own.
  std::uint32_t launched_splits = 0;
  bool widens_kv = false;  // a kernel before this one makes a 16-bit copy of the KV it reads
  bool queues = false;     // blocks that find no room wait for a whole one, each as slow as if alone
  // Times that the same KV is read, by blocks of other query heads that run at another time; from L2 the
  // later ones, if a part of all requests fits it.
  double reads = 1;
  // Dual chunk attention: `items` are the chunks that the new tokens lie in; these, as many, are the chunk
  // before (succ) and all before that (inter; empty ranges where a sequence is short). Each of the three is a
  // kernel of its own with queries of its own, and their results are merged. Empty: none of it.
  std::vector<DecodeItem> succ_items, inter_items;
};

// The extend of one request: query tokens [0, q_len) after `prefix` cached tokens, in tiles of the plan's
// tile_m tokens. The tile from token r on reads KV [max(0, prefix + r + 1 - window), prefix + min(r + tile_m,
// q_len)), in steps of tile_n.
// Chunked attention (Llama 4) makes one item of each chunk that has new tokens, counted from the chunk's
// begin: kv_begin, after first_row new tokens of the request.
struct ExtendItem {
  std::uint32_t request = 0;
  std::uint32_t prefix = 0;
  std::uint32_t q_len = 0;
  std::uint32_t first_row = 0;
  std::uint32_t kv_begin = 0;
};

struct ExtendPlan {
  std::vector<ExtendItem> items;
  std::uint32_t tile_m = 128;     // query tokens of a tile
  std::uint32_t tile_n = 128;     // KV tokens of one step of its loop
  std::uint32_t rows = 128;       // query rows of a tile: tile_m x the query heads packed into it, padded
  std::uint32_t head_blocks = 0;  // thread blocks per tile: one per KV head (packed) or per query head
  std::uint32_t kv_chunk = 0;     // KV tokens of one part; parts are merged. 0: tiles are not split
  double merge_blocks = 0;        // thread blocks of the kernel that merges, launched whether or not parts
                                  // are there for it. 0: it is launched where they are
  std::uint32_t grid_tiles = 0;   // tiles launched for every request; those past its end walk the whole KV
                                  // range for nothing. 0: as many tiles as the request has
  // Where some request has a cached prefix: the prefix is read by a kernel of its own, without causal mask,
  // in tiles of prefix_rows rows, and a third kernel merges. 0: one kernel reads all.
  std::uint32_t prefix_rows = 0;
  std::uint32_t prefix_tile_m = 0;
  std::uint32_t prefix_head_blocks = 0;
  std::uint32_t prefix_chunk = 0;
  // The kernel that else reads prefixes only reads all, as `rows` and `tile_m` say.
  bool prefix_kernel = false;
  // MLA, expanded: the cached prefixes are read by one kernel for every so many tokens of each request,
  // without causal mask, and what it finds is merged with the rest. 0: prefix and new tokens are read
  // together.
  std::uint32_t mla_chunk = 0;
  bool widens_kv = false;     // a kernel before this one makes a 16-bit copy of the KV it reads
  bool walks_window = false;  // a window's tiles are masked one by one: the loop walks the whole range
  // Dual chunk attention: tokens of a chunk. A tile lies in one chunk and reads it, the chunk before it and
  // all before that in three kernels with queries of their own, whose results are merged. 0: none of it.
  std::uint32_t chunk_len = 0;
};

// An empty plan, which keeps the capacity of its items.
template <typename Plan>
void clear(Plan& plan) {
  auto items = std::move(plan.items);
  items.clear();
  plan = {};
  plan.items = std::move(items);
}

// KV tokens that the tile from token `row` on reads, rounded out to whole steps of tile_n.
struct TileRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};
TileRange tile_range(const ExtendPlan& plan, const ExtendItem& item, std::uint32_t row, std::uint32_t window);

// Sum over all tiles of one item of the length of tile_range, in closed form (tiles of a long prompt are
// many). REQUIRES: item.q_len > 0.
std::uint64_t tile_tokens(const ExtendPlan& plan, const ExtendItem& item, std::uint32_t window);

// q_len query tokens of one request after `prefix` tokens that are stored already.
struct SparseItem {
  std::uint32_t request = 0;  // position in the batch
  std::uint32_t prefix = 0;
  std::uint32_t q_len = 0;
};

// What the kernels of sparse attention would run. Every query token attends the `top_k` tokens that the
// indexer scored highest among those before it (and itself), or all of them while there are no more.
//
// Source: SGLang 0.5.23, layers/attention/dsa_backend.py: each query token is a sequence of its own, whose KV
// is a list of slots (page tables with pages of one token); kernels walk the list in steps.
struct SparsePlan {
  std::vector<SparseItem> items;
  std::uint32_t top_k = 0;
  std::uint32_t block = 64;  // listed tokens of one step of the kernel's loop
  std::uint32_t part = 0;    // listed tokens of one part; parts are merged. 0: a list is one part
  std::uint32_t rows = 0;    // query heads that the arithmetic is done for, padding included
  bool whole_list = false;   // the kernel walks all top_k places, also those that hold no token
};

// What a plan's price depends on, summed over its items.
struct SparseLoad {
  double requests = 0;
  double queries = 0;              // query tokens
  double listed = 0;               // tokens of their lists
  double distinct = 0;             // of them, those that no other query token of the request has listed
  std::uint32_t longest_list = 0;  // places that the kernel walks for one query token
  double walked = 0;               // places walked, those without a token included
  double stored = 0;               // tokens of the requests
  double scored = 0;               // logits of the indexer
  double searching = 0;            // query tokens whose row of logits is searched
  double searched = 0;             // logits of those rows
  std::uint32_t longest_row = 0;   // of those rows
};
SparseLoad load_of(const SparsePlan& plan);

// What corrections of attention classes (proto/correction_surface.h) see of a plan, in the order of
// kPlanFeatures (proto/coefficients.h); 0 where a feature has no value (no prefix, no window).
struct PlanFeatures {
  double requests = 0;
  double tokens = 0;
  double prefix = 0;
  double kv_heads = 0;
  double group = 0;
  double head_dim = 0;
  double window = 0;
  double element_bytes = 0;
  double blocks = 0;
  double part = 0;
  double spread = 0;
  double l2_fill = 0;
  double rows = 0;

  std::array<double, std::size(kPlanFeatures)> values() const {
    return {requests,      tokens, prefix, kv_heads, group,   head_dim, window,
            element_bytes, blocks, part,   spread,   l2_fill, rows};
  }
};

DecodeTotals decode_totals(const DecodePlan& plan);

// Those of the batch and the layer; blocks, part and l2_fill are left to the caller, who counted them.
PlanFeatures plan_features(const DecodeTotals& totals, const LayerShape& layer);
PlanFeatures plan_features(const ExtendPlan& plan, const LayerShape& layer);

// Arithmetic and traffic that no kernel can do without: unpadded heads, pairs of tokens under the mask, every
// byte of queries, outputs and visible KV once.
struct PlanWork {
  double flops = 0;
  double bytes = 0;
};
PlanWork least_work(const DecodeTotals& totals, const LayerShape& layer);
PlanWork least_work(const ExtendPlan& plan, const LayerShape& layer);

}  // namespace tpsim::attention
