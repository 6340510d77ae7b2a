#include "attention/backends/gathered_backend.h"

namespace tpsim::attention::backends {
namespace {

// Reading the cache through an index and writing dense copies of K and V.
double gather_bytes(std::uint32_t tokens, const LayerShape& layer) {
  return 2.0 * tokens * layer.num_kv_heads * (double(layer.head_dim) + layer.v_head_dim) * layer.kv_bytes();
}

// A prefill copies the new queries into a tensor with rows for the prefix, too, and the new rows of what
// comes out of it.
double copied_bytes(std::uint32_t tokens, const LayerShape& layer) {
  return 2.0 * tokens * layer.num_q_heads * (double(layer.head_dim) + layer.v_head_dim) * layer.q_bytes;
}

LayerShape without_window(const LayerShape& layer) {
  LayerShape full = layer;
  full.sliding_window = 0;
  return full;
}

}  // namespace

HostCost GatheredBackend::host_cost() const {
  HostCost cost = PlannedBackend::host_cost();
  cost.synchronous = true;
  return cost;
}

void GatheredBackend::add_whole_items(DecodePlan& plan) const {
  for (const std::uint32_t length : metadata().decode_seq_lens)
    plan.items.push_back({static_cast<std::uint32_t>(plan.items.size()), 0, length, 1, length});
}

void GatheredBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  add_extend_items_by_head(128, 64, layer, plan);
}

// Each request is a plan of its own.
KernelCost GatheredBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                        const LayerShape& layer) {
  KernelCost cost;
  const LayerShape full = without_window(layer);
  one_decode_.blocks_per_split = plan.blocks_per_split;
  one_decode_.rows = plan.rows;
  for (const DecodeItem& item : plan.items) {
    one_decode_.items.assign(1, item);
    one_decode_.merge = item.splits > 1;
    KernelCost one = model.decode(one_decode_, full);
    one += model.gather(gather_bytes(item.kv_end, layer), full);
    one.launches = launches_.decode + (item.splits > 1 ? launches_.merge : 0);
    cost += one;
  }
  return cost;
}

KernelCost GatheredBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                        const LayerShape& layer) {
  KernelCost cost;
  const LayerShape full = without_window(layer);
  one_extend_.tile_m = plan.tile_m;
  one_extend_.tile_n = plan.tile_n;
  one_extend_.rows = plan.rows;
  one_extend_.head_blocks = plan.head_blocks;
  for (const ExtendItem& item : plan.items) {
    const std::uint32_t length = item.prefix + item.q_len;  // rows for the prefix, too
    one_extend_.items.assign(1, {item.request, 0, length});
    KernelCost one = model.extend(one_extend_, full);
    one += model.gather(gather_bytes(length, layer) + copied_bytes(item.q_len, layer), full);
    one.launches = launches_.extend;
    cost += one;
  }
  return cost;
}

}  // namespace tpsim::attention::backends
