#include "attention/sparse_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace tpsim::attention {
namespace {

constexpr double kLogitBytes = 4;
// Kernels of the indexer after its projections: norm and rotation, rounding of queries, of keys into their
// pages, head weights, logits, selection. (dsa_indexer.py, forward_cuda)
constexpr std::uint32_t kIndexKernels = 6;
constexpr std::uint32_t kKeysOnlyKernels = 2;
// DeepGEMM's kernels for logits are built for 32 or 64 heads. (_pad_heads_for_deep_gemm)
double padded_heads(std::uint32_t heads) { return std::max(32.0, double(heads)); }

// `tokens` and `stored` are of all requests.
PlanFeatures features_of(double requests, double tokens, double stored, double kv_heads, double group,
                         double head_dim, double element_bytes) {
  return {.requests = requests,
          .tokens = tokens / requests,
          .prefix = stored / requests,
          .kv_heads = kv_heads,
          .group = group,
          .head_dim = head_dim,
          .element_bytes = element_bytes};
}

}  // namespace

SparseCost::SparseCost(const proto::HardwareProfile& profile, const PlanCoefficients& attend,
                       const IndexCoefficients& index, Corrections attend_corrections,
                       Corrections index_corrections)
    : a_(attend),
      i_(index),
      attend_corrections_(std::move(attend_corrections)),
      index_corrections_(std::move(index_corrections)),
      bf16_flops_(profile.dense_flops_bf16()),
      fp8_flops_(profile.dense_flops_fp8() > 0 ? profile.dense_flops_fp8() : profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()),
      multiprocessors_(profile.multiprocessors()),
      l2_bytes_(profile.l2_bytes()) {}

SparseCost::SparseCost(const proto::HardwareProfile& profile, std::string_view attend, std::string_view index)
    : SparseCost(profile, coefficients_of<PlanCoefficients>(profile, attend),
                 coefficients_of<IndexCoefficients>(profile, index),
                 Corrections(find_efficiency(profile, attend), kPlanFeatures),
                 Corrections(find_efficiency(profile, index), kPlanFeatures)) {}

KernelCost SparseCost::corrected(KernelCost cost, const Corrections& corrections,
                                 const PlanFeatures& features, double least_seconds) const {
  if (corrections.empty()) return cost;
  cost.seconds = std::max(cost.seconds * corrections.factor(features.values()), least_seconds);
  return cost;
}

PlanFeatures SparseCost::attend_features(const SparseLoad& load, const LayerShape& layer,
                                         double token_bytes) const {
  PlanFeatures features = features_of(load.queries, load.walked, load.stored, 1, layer.num_q_heads,
                                      layer.head_dim, layer.q_bytes + token_bytes / layer.head_dim);
  features.l2_fill = l2_bytes_ > 0 ? load.distinct * token_bytes / l2_bytes_ : kNothingHeld;
  return features;
}

PlanFeatures SparseCost::dense_features(const SparseLoad& load, const LayerShape& layer) const {
  return features_of(load.requests, load.queries, load.stored, layer.num_q_heads, 1, layer.head_dim,
                     2.0 * layer.q_bytes);
}

PlanFeatures SparseCost::index_features(const SparseLoad& load, const IndexShape& shape) const {
  return features_of(load.requests, load.queries, load.stored, 1, shape.heads, shape.head_dim, 2);
}

KernelCost SparseCost::attend(const SparsePlan& plan, const SparseLoad& load, const LayerShape& layer,
                              double token_bytes) const {
  KernelCost cost;
  if (load.queries == 0) return cost;
  const double width = double(layer.head_dim) + layer.v_head_dim;
  const double parts = plan.part == 0 ? 1 : std::max(1.0, std::ceil(double(load.longest_list) / plan.part));
  const double blocks = load.queries * parts * std::ceil(plan.rows / 128.0);
  cost.flops = 2 * load.walked * plan.rows * width;
  cost.bytes = load.distinct * token_bytes + load.queries * layer.num_q_heads * width * layer.q_bytes;
  cost.launches = 1;
  const double rate = a_.compute * (layer.q_bytes == 1 ? fp8_flops_ * a_.fp8_compute : bf16_flops_);
  // A block alone has no more than its multiprocessor.
  const double alone = 2.0 * load.longest_list / parts * std::min(plan.rows, 128U) * width /
                       (rate / multiprocessors_ * a_.block_compute);
  const double arithmetic = std::max(cost.flops / rate, alone);
  const double bandwidth = bandwidth_ * a_.memory;
  const double memory = (cost.bytes + (load.listed - load.distinct) * token_bytes / a_.l2_memory) / bandwidth;
  cost.seconds = a_.fixed_seconds + std::ceil(blocks / multiprocessors_) * a_.block_seconds +
                 std::max(arithmetic, memory) + a_.overlap * std::min(arithmetic, memory);
  if (parts > 1) {
    const double merge_bytes = 2 * load.queries * parts * layer.num_q_heads * (layer.v_head_dim + 1) * 4.0;
    cost.bytes += merge_bytes;
    cost.seconds += merge_bytes / bandwidth;
    ++cost.launches;
  }
  if (attend_corrections_.empty()) return cost;
  const double peak = layer.q_bytes == 1 ? fp8_flops_ : bf16_flops_;
  return corrected(
      cost, attend_corrections_, attend_features(load, layer, token_bytes),
      std::max(2 * load.listed * layer.num_q_heads * width / peak, load.distinct * token_bytes / bandwidth_));
}

KernelCost SparseCost::dense(const SparsePlan& plan, const SparseLoad& load, const LayerShape& layer) const {
  constexpr double kTile = 128;  // query tokens
  KernelCost cost;
  if (load.queries == 0) return cost;
  const double width = double(layer.head_dim) + layer.v_head_dim;
  double tiles = 0;
  for (const SparseItem& item : plan.items) tiles += std::ceil(item.q_len / kTile);
  cost.flops = 2 * load.scored * layer.num_q_heads * width;
  cost.bytes = (load.queries + load.stored) * layer.num_q_heads * width * layer.q_bytes;
  cost.launches = 1;
  const double arithmetic = cost.flops / (bf16_flops_ * a_.compute);
  const double memory = cost.bytes / (bandwidth_ * a_.memory);
  cost.seconds = a_.fixed_seconds + tiles * layer.num_q_heads / multiprocessors_ * a_.block_seconds +
                 std::max(arithmetic, memory) + a_.overlap * std::min(arithmetic, memory);
  if (attend_corrections_.empty()) return cost;
  return corrected(cost, attend_corrections_, dense_features(load, layer),
                   std::max(cost.flops / bf16_flops_, cost.bytes / bandwidth_));
}

KernelCost SparseCost::index_keys_only(const SparseLoad& load, const IndexShape& shape) const {
  // A key in bf16 through the norm, and into its page.
  const double bytes = load.queries * (4.0 * shape.head_dim + index_key_bytes(shape.head_dim));
  return {.seconds = i_.fixed_seconds * kKeysOnlyKernels / kIndexKernels + bytes / (bandwidth_ * i_.memory),
          .bytes = bytes,
          .launches = kKeysOnlyKernels};
}

// Keys and queries in 16 bit are multiplied by Triton, whose tiles have 16 rows; the best score of a block is
// kept, of each head, and each head's row is searched. One thread block (in decode a few) walks a row of
// blocks from end to end, so that the longest takes its time whatever the others do: 2.7 us for each of its
// 128 tokens in a prefill on an H200, with 1 to 2,048 new ones (msa_context_module_perf).
KernelCost SparseCost::index_blocks(const SparseLoad& load, const IndexShape& shape) const {
  constexpr double kRows = 16;
  const double heads = shape.heads, scores = load.scored / shape.block * heads;
  KernelCost cost;
  cost.bytes = load.queries * heads * shape.head_dim * 4.0 + load.stored * shape.key_bytes +
               (scores + load.searched * heads) * kLogitBytes;
  cost.flops = 2 * load.scored * heads * shape.head_dim;
  cost.launches = 3;  // norms and rotation with the keys' way into their pages, scores, selection
  const double padded = load.queries == load.requests ? std::max(kRows, heads) / heads : 1;
  const double arithmetic = cost.flops * padded / (bf16_flops_ * i_.compute);
  const double memory = cost.bytes / (bandwidth_ * i_.memory);
  const double walk = load.longest_row * i_.select_token_seconds;
  cost.seconds = i_.fixed_seconds + std::max({arithmetic, memory, walk}) +
                 i_.overlap * std::min(arithmetic, memory) +
                 heads * load.queries / multiprocessors_ * i_.select_seconds;
  if (index_corrections_.empty()) return cost;
  return corrected(cost, index_corrections_, index_features(load, shape),
                   std::max(cost.flops / bf16_flops_, load.stored * shape.key_bytes / bandwidth_));
}

KernelCost SparseCost::index(const SparseLoad& load, const IndexShape& shape, bool gathers) const {
  KernelCost cost;
  if (load.queries == 0) return cost;
  if (shape.block > 0) return index_blocks(load, shape);
  // Queries in bf16 and back as fp8; keys (copied together first, or not); logits out, and twice in.
  cost.bytes = load.queries * shape.heads * shape.head_dim * 4.0 +
               load.stored * index_key_bytes(shape.head_dim) * (gathers ? 3 : 1) +
               (load.scored + 2 * load.searched) * kLogitBytes;
  cost.flops = 2 * load.scored * padded_heads(shape.heads) * shape.head_dim;
  cost.launches = kIndexKernels + (gathers ? 1 : 0);
  const double arithmetic = cost.flops / (fp8_flops_ * i_.compute);
  const double memory = cost.bytes / (bandwidth_ * i_.memory);
  const double row =
      load.longest_row == 0 ? 0 : i_.select_seconds + load.longest_row * i_.select_token_seconds;
  const double rows =
      (load.searching * i_.select_seconds + load.searched * i_.select_token_seconds) / multiprocessors_;
  cost.seconds = i_.fixed_seconds + std::max(arithmetic, memory) + i_.overlap * std::min(arithmetic, memory) +
                 std::max(row, rows);
  if (index_corrections_.empty()) return cost;
  const double keys = load.stored * index_key_bytes(shape.head_dim);
  return corrected(cost, index_corrections_, index_features(load, shape),
                   std::max(2 * load.scored * shape.heads * shape.head_dim / fp8_flops_, keys / bandwidth_));
}

}  // namespace tpsim::attention
