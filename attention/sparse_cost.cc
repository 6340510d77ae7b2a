#include "attention/sparse_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tpsim::attention {
namespace {

constexpr double kLogitBytes = 4;
// Kernels of the indexer behind its projections: norm and rotation, rounding of queries, of keys into their
// pages, head weights, logits, selection. (dsa_indexer.py, forward_cuda)
constexpr std::uint32_t kIndexKernels = 6;
constexpr std::uint32_t kKeysOnlyKernels = 2;
// DeepGEMM's kernels for logits are built for 32 or 64 heads. (_pad_heads_for_deep_gemm)
double padded_heads(std::uint32_t heads) { return std::max(32.0, double(heads)); }

}  // namespace

SparseCost::SparseCost(const proto::HardwareProfile& profile, const PlanCoefficients& attend,
                       const IndexCoefficients& index)
    : a_(attend),
      i_(index),
      bf16_flops_(profile.dense_flops_bf16()),
      fp8_flops_(profile.dense_flops_fp8() > 0 ? profile.dense_flops_fp8() : profile.dense_flops_bf16()),
      bandwidth_(profile.memory_bandwidth()),
      multiprocessors_(profile.multiprocessors()) {}

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
  return cost;
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
  return cost;
}

KernelCost SparseCost::index_keys_only(const SparseLoad& load, const IndexShape& shape) const {
  KernelCost cost;
  // A key in bf16 through the norm, and into its page.
  cost.bytes = load.queries * (4.0 * shape.head_dim + index_key_bytes(shape.head_dim));
  cost.launches = kKeysOnlyKernels;
  cost.seconds = i_.fixed_seconds * kKeysOnlyKernels / kIndexKernels + cost.bytes / (bandwidth_ * i_.memory);
  return cost;
}

KernelCost SparseCost::index(const SparseLoad& load, const IndexShape& shape, bool gathers) const {
  KernelCost cost;
  if (load.queries == 0) return cost;
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
  return cost;
}

}  // namespace tpsim::attention
