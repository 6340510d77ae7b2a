// MiniMax M3's sparse attention (MSA): an indexer scores the tokens of a sequence by one key of its own for
// each, once for every KV head, and the query heads of a KV head attend to the blocks of tokens that hold the
// best scores, the latest block always among them. Layers that attend so lie between plain ones, which the
// named backend serves; no backend has a name of its own for it (MiniMaxHybridAttnBackend).
//
// Source: SGLang 0.5.23, layers/attention/minimax_sparse_backend.py and minimax_sparse_ops. Triton's kernels
// carry it out: fmha_sm100's (MSA proper) are a package of their own, which prefill takes on Blackwell where
// it is installed, and captured decodes leave alone (SGLANG_OPT_USE_MSA_DECODE_UNDER_GRAPH).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "attention/backend.h"
#include "attention/layer_shape.h"
#include "attention/plan.h"
#include "attention/sparse_cost.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// Of the lists of one KV head; what the indexer scores is of one of its heads. Its rows are of blocks.
// REQUIRES: layer.form is kBlockSparse.
SparseLoad block_sparse_load(std::span<const SparseItem> items, const LayerShape& layer);

// Both kernels, all KV heads of the rank: attention, and the indexer behind its projections.
struct BlockSparseCost {
  KernelCost attend, index;
};
BlockSparseCost block_sparse_cost(const SparseCost& price, const SparseLoad& load, const LayerShape& layer,
                                  bool decodes, std::uint32_t multiprocessors);

// What its kernels see of a load, for corrections and their fits.
SparseLoad of_all_kv_heads(SparseLoad load, const LayerShape& layer);
LayerShape of_one_kv_head(LayerShape layer);
IndexShape index_shape(const LayerShape& layer);

// Prices by the classes "attention.msa.blocks.extend", "attention.msa.indexer.extend" and those of decode; by
// "attention.msa.blocks_fp8.extend" and so on where the cache is fp8, which these kernels widen as they read,
// and so take longer for than for one of 16 bit.
class BlockSparse {
 public:
  explicit BlockSparse(const proto::HardwareProfile& profile);
  KernelCost cost(std::span<const SparseItem> items, const LayerShape& layer, bool decodes) const;

 private:
  struct Phases {
    SparseCost extend, decode;
  };
  Phases wide_, fp8_;
  std::uint32_t multiprocessors_;
};

}  // namespace tpsim::attention
