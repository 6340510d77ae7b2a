#include "attention/torch_native.h"

#include <algorithm>

namespace tpsim::attention {

TorchNativeBackend::TorchNativeBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
    : PlannedBackend("torch_native", profile, page_size),
      extend_(coefficients_of(profile, "attention.torch_native.extend")),
      decode_(coefficients_of(profile, "attention.torch_native.decode")),
      extend_model_(profile, extend_),
      decode_model_(profile, decode_) {}

void TorchNativeBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  // SDPA gets one row per query head: a block each.
  plan.blocks_per_split = layer.num_q_heads;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    DecodeItem item = decode_item(i, lengths[i], layer);
    item.kv_begin = 0;  // windows are not cut out, only masked
    item.split_tokens = item.kv_end;
    plan.items.push_back(item);
  }
}

void TorchNativeBackend::plan_extend(const LayerShape&, ExtendPlan& plan) {
  plan.tile_m = plan.rows = 128;
  plan.tile_n = 64;
  add_extend_items(plan);
}

// Reading the cache through an index and writing dense copies.
void TorchNativeBackend::add_gather(std::uint32_t tokens, const LayerShape& layer, KernelCost& cost) const {
  const double bytes =
      2.0 * tokens * layer.num_kv_heads * double(layer.head_dim + layer.v_head_dim) * layer.kv_bytes;
  cost.bytes += bytes;
  cost.seconds += bytes / (profile().memory_bandwidth() * decode_.memory);
}

// Requests run one after another: each is a plan of its own.
KernelCost TorchNativeBackend::decode_cost(const DecodePlan& plan, const LayerShape& layer) {
  KernelCost cost;
  LayerShape full = layer;
  full.sliding_window = 0;
  one_decode_.blocks_per_split = plan.blocks_per_split;
  for (const DecodeItem& item : plan.items) {
    one_decode_.items.assign(1, item);
    KernelCost one = decode_model_.decode(one_decode_, full);
    one.launches = kDecodeLaunches;
    add_gather(item.kv_end, layer, one);
    cost += one;
  }
  return cost;
}

KernelCost TorchNativeBackend::extend_cost(const ExtendPlan& plan, const LayerShape& layer) {
  KernelCost cost;
  LayerShape full = layer;
  full.sliding_window = 0;
  one_extend_.tile_m = plan.tile_m;
  one_extend_.tile_n = plan.tile_n;
  one_extend_.rows = plan.rows;
  for (const ExtendItem& item : plan.items) {
    // Rows for the whole sequence, the prefix included.
    one_extend_.items.assign(1, {item.request, 0, item.prefix + item.q_len});
    KernelCost one = extend_model_.extend(one_extend_, full);
    one.launches = kExtendLaunches;
    add_gather(item.prefix + item.q_len, layer, one);
    cost += one;
  }
  return cost;
}

}  // namespace tpsim::attention
