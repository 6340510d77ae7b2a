// The cost of sparse attention on a GPU: of the kernel that attends the listed tokens, and of the indexer
// that makes the lists.
//
// Attention: every query token's heads are multiplied with the tokens of its list. The multiprocessors share
// the query tokens (and the parts of their lists); the listed KV streams from memory the first time and from
// the L2 cache where another query token of the same sequence has read it. The kernel takes as long as the
// slower of arithmetic and memory, a share of the other, a fixed time, and a time per wave of blocks.
//
// Indexer: the fp8 index keys are multiplied with the indexer's query heads, one fp32 logit per pair of
// tokens goes to memory, and one thread block per query token picks the best top_k of its row. Rows of at
// most top_k tokens are not searched. The projections of the indexer are matrix products like the layer's
// others.
//
// What the classes' corrections (proto/correction_surface.h) say multiplies each of these kernels, which then
// stay at or above what the datasheet's peaks leave for the least work. Of their features (kPlanFeatures),
// for attention: every query token is a request, `tokens` the mean places of a list that its kernel walks,
// `prefix` the tokens stored for each query token, l2_fill what is read once over the L2. For dense prefills
// and the indexer: requests of the batch, `tokens` new and `prefix` stored ones of each; of the indexer
// `group` its own heads.
//
// The coefficients (proto/coefficients.h) are fitted to measured modules by launch/lab/calibrate/sparse_fit.h
// and come in with the hardware profile, classes "attention.nsa.KERNEL.extend", "attention.nsa.KERNEL.decode"
// and "attention.nsa.indexer.extend", "attention.nsa.indexer.decode".
#pragma once

#include <cstdint>
#include <string_view>

#include "attention/backend.h"
#include "attention/plan.h"
#include "attention/sparse_kernels.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// The lightning indexer of one layer; every rank has all of it.
struct IndexShape {
  std::uint32_t heads = 0;  // 0: the layer has none and takes the selection of a layer before it
  std::uint32_t head_dim = 0;
  // Where blocks of tokens are chosen (block_sparse.h): tokens of one, which share a score, of each head
  // apart; and bytes of a token's key. 0: tokens are chosen, by fp8 keys.
  std::uint32_t block = 0;
  std::uint32_t key_bytes = index_key_bytes(head_dim);
};

class SparseCost {
 public:
  // `attend`: coefficients of the kernel; `index`: of the indexer in the same phase.
  SparseCost(const proto::HardwareProfile& profile, const PlanCoefficients& attend,
             const IndexCoefficients& index, Corrections attend_corrections = {},
             Corrections index_corrections = {});
  // Both by their classes in the profile; without one the defaults.
  SparseCost(const proto::HardwareProfile& profile, std::string_view attend, std::string_view index);

  // `token_bytes`: what is stored of one token and read by the kernel.
  KernelCost attend(const SparsePlan& plan, const SparseLoad& load, const LayerShape& layer,
                    double token_bytes) const;
  // A copy that moves `bytes`, reads and writes together.
  KernelCost copy(double bytes) const { return {bytes / (bandwidth_ * a_.memory), 0, bytes, 1}; }
  // Dense attention of short prefills: keys and values of every head are there already. `layer` is the
  // expanded shape.
  KernelCost dense(const SparsePlan& plan, const SparseLoad& load, const LayerShape& layer) const;
  // All of the indexer after its projections: norm, rotation, fp8 rounding, new keys into their pages,
  // logits, selection. `gathers`: the keys of all tokens are first copied together (the kernel for ragged
  // extends).
  KernelCost index(const SparseLoad& load, const IndexShape& shape, bool gathers) const;
  // Only the new keys go to their pages: where every token is attended anyway.
  KernelCost index_keys_only(const SparseLoad& load, const IndexShape& shape) const;

  // What the corrections of attend(), dense() and index() see. REQUIRES: load.queries > 0.
  PlanFeatures attend_features(const SparseLoad& load, const LayerShape& layer, double token_bytes) const;
  PlanFeatures dense_features(const SparseLoad& load, const LayerShape& layer) const;
  PlanFeatures index_features(const SparseLoad& load, const IndexShape& shape) const;

 private:
  KernelCost corrected(KernelCost cost, const Corrections& corrections, const PlanFeatures& features,
                       double least_seconds) const;
  KernelCost index_blocks(const SparseLoad& load, const IndexShape& shape) const;

  PlanCoefficients a_;
  IndexCoefficients i_;
  Corrections attend_corrections_, index_corrections_;
  double bf16_flops_, fp8_flops_, bandwidth_, multiprocessors_, l2_bytes_;
};

}  // namespace tpsim::attention
