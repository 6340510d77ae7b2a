#include "attention/trtllm_mha.h"

#include <algorithm>

namespace tpsim::attention {
namespace {

constexpr std::uint32_t kStep = 128;                // KV tokens of one step of the loop
constexpr std::uint32_t kMaxClusterSplits = 16;     // thread blocks of a cluster
constexpr std::uint32_t kClampTokens = 4096;        // of a part, up to which the cluster's 16 parts are kept

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

TrtllmMhaBackend::TrtllmMhaBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
    : PlannedBackend("trtllm_mha", profile, page_size) {}

std::uint32_t TrtllmMhaBackend::tile_q(std::uint32_t group) {
  std::uint32_t rows = 8;
  while (rows < group && rows < 128) rows *= 2;
  return rows;
}

void TrtllmMhaBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t group = std::max(1U, layer.num_q_heads / layer.num_kv_heads);
  plan.rows = tile_q(group);
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
  if (layer.v_head_dim > 256 && plan.rows >= 64) plan.blocks_per_split *= ceil_div(layer.v_head_dim, 256);
  std::uint32_t longest = 0;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    plan.items.push_back(decode_item(i, lengths[i], layer));
    longest = std::max(longest, plan.items.back().split_tokens);
  }
  const std::uint32_t grid = plan.blocks_per_split * static_cast<std::uint32_t>(lengths.size());
  std::uint32_t splits = std::min(ceil_div(longest, 2 * kStep), std::max(1U, multiprocessors() / grid));
  if (splits > kMaxClusterSplits && plan.rows <= 32 && ceil_div(longest, kMaxClusterSplits) <= kClampTokens) {
    splits = kMaxClusterSplits;
  }
  if (splits == 1) return;
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    item.split_tokens = ceil_div(ceil_div(tokens, kStep), splits) * kStep;
    item.splits = ceil_div(tokens, item.split_tokens);
    item.split_tokens = std::min(item.split_tokens, tokens);
    plan.merge = plan.merge || item.splits > 1;
  }
  plan.merge_in_kernel = plan.merge;
}

void TrtllmMhaBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  plan.rows = plan.tile_m = 256;  // two tiles of 128 rows work on the same keys
  plan.tile_n = kStep;
  plan.head_blocks = layer.num_q_heads;
  add_extend_items(plan);
}

KernelCost TrtllmMhaBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                         const LayerShape& layer) {
  LayerShape own = layer;
  own.q_bytes = layer.kv_bytes == 1 ? 1 : layer.q_bytes;
  KernelCost cost = model.extend(plan, own);
  if (layer.kv_bytes == 1 && cost.launches > 0) ++cost.launches;  // q's cast
  return cost;
}

KernelCost TrtllmMhaBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                         const LayerShape& layer) {
  KernelCost cost = model.decode(plan, layer);
  if (layer.kv_bytes == 1 && cost.launches > 0) ++cost.launches;
  return cost;
}

// Lengths, their sums and the page table: two small kernels a pass.
KernelCost TrtllmMhaBackend::plan_cost() const { return {2 * 2e-6, 0, 0, 2}; }

}  // namespace tpsim::attention
