#include "attention/block_sparse.h"

#include <algorithm>

#include "attention/sparse_kernels.h"

namespace tpsim::attention {
namespace {

// Sum over lengths 1 to n of the blocks that hold so many tokens, at most `most`.
double sum_of_blocks(std::uint64_t n, std::uint64_t block, std::uint64_t most) {
  const std::uint64_t growing = std::min(n, most * block);
  const std::uint64_t whole = growing / block, rest = growing % block;
  return static_cast<double>(block * whole * (whole + 1) / 2 + rest * (whole + 1)) +
         static_cast<double>(n - growing) * static_cast<double>(most);
}

}  // namespace

SparseLoad block_sparse_load(std::span<const SparseItem> items, const LayerShape& layer) {
  constexpr std::uint64_t kAll = 1U << 30;
  const std::uint64_t block = layer.select_block, most = layer.top_k / layer.select_block;
  SparseLoad load;
  for (const SparseItem& item : items) {
    const std::uint64_t first = item.prefix, length = first + item.q_len;
    const double walked =
        static_cast<double>(block) * (sum_of_blocks(length, block, most) - sum_of_blocks(first, block, most));
    ++load.requests;
    load.queries += item.q_len;
    load.walked += walked;
    load.distinct += std::min(walked, static_cast<double>(length));
    load.longest_list =
        std::max(load.longest_list, static_cast<std::uint32_t>(std::min<std::uint64_t>(length, layer.top_k)));
    load.stored += static_cast<double>(length);
    load.scored += static_cast<double>(item.q_len * first + item.q_len * (item.q_len + std::uint64_t{1}) / 2);
    // Rows with more blocks than are chosen.
    const std::uint64_t searched_from = std::clamp<std::uint64_t>(most * block, first, length);
    load.searching += static_cast<double>(length - searched_from);
    load.searched += sum_of_blocks(length, block, kAll) - sum_of_blocks(searched_from, block, kAll);
    load.longest_row = std::max(load.longest_row, static_cast<std::uint32_t>((length + block - 1) / block));
  }
  load.listed = load.walked;
  return load;
}

SparseLoad of_all_kv_heads(SparseLoad load, const LayerShape& layer) {
  for (double SparseLoad::*const of : {&SparseLoad::queries, &SparseLoad::listed, &SparseLoad::distinct,
                                       &SparseLoad::walked, &SparseLoad::stored})
    load.*of *= layer.num_kv_heads;
  return load;
}

LayerShape of_one_kv_head(LayerShape layer) {
  layer.num_q_heads = std::max(1U, layer.num_q_heads / layer.num_kv_heads);
  layer.num_kv_heads = 1;
  return layer;
}

IndexShape index_shape(const LayerShape& layer) {
  return {.heads = layer.index_heads,
          .head_dim = layer.index_head_dim,
          .block = layer.select_block,
          .key_bytes = block_index_key_bytes(layer.index_head_dim, layer.kv_format)};
}

BlockSparseCost block_sparse_cost(const SparseCost& price, const SparseLoad& load, const LayerShape& layer,
                                  bool decodes, std::uint32_t multiprocessors) {
  constexpr std::uint32_t kRows = 16, kMostParts = 16;  // of a block of Triton's dot; of a list
  const LayerShape one = of_one_kv_head(layer);
  const SparseLoad all = of_all_kv_heads(load, layer);
  SparsePlan plan;
  plan.top_k = layer.top_k;
  plan.rows = std::max(kRows, one.num_q_heads);
  const double share = multiprocessors / std::max(1.0, all.queries);
  if (const auto parts = static_cast<std::uint32_t>(std::clamp<double>(share, 1, kMostParts));
      decodes && parts > 1)
    plan.part = std::max(layer.select_block, load.longest_list / parts);
  BlockSparseCost cost;
  cost.attend = price.attend(plan, all, one, 2 * layer.head_dim * layer.kv_bytes());
  cost.index = price.index(load, index_shape(layer), false);
  return cost;
}

BlockSparse::BlockSparse(const proto::HardwareProfile& profile)
    : wide_{SparseCost(profile, "attention.msa.blocks.extend", "attention.msa.indexer.extend"),
            SparseCost(profile, "attention.msa.blocks.decode", "attention.msa.indexer.decode")},
      fp8_{SparseCost(profile, "attention.msa.blocks_fp8.extend", "attention.msa.indexer_fp8.extend"),
           SparseCost(profile, "attention.msa.blocks_fp8.decode", "attention.msa.indexer_fp8.decode")},
      multiprocessors_(profile.multiprocessors()) {}

KernelCost BlockSparse::cost(std::span<const SparseItem> items, const LayerShape& layer, bool decodes) const {
  if (items.empty()) return {};
  const Phases& phases = layer.fp8_kv() ? fp8_ : wide_;
  BlockSparseCost cost = block_sparse_cost(decodes ? phases.decode : phases.extend,
                                           block_sparse_load(items, layer), layer, decodes, multiprocessors_);
  cost.attend += cost.index;
  return cost.attend;
}

}  // namespace tpsim::attention
