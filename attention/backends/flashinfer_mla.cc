#include "attention/backends/flashinfer_mla.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

constexpr std::uint32_t kMlaTile = 64;  // query rows of a thread block

// The length of a part for `total` KV tokens over all tiles and `clusters` persistent blocks.
std::uint32_t part_length(std::uint64_t total, std::uint32_t clusters) {
  const std::uint64_t share = std::max<std::uint64_t>(1, ceil_div(total, clusters));
  if (share <= 8) return 32;
  if (share <= 16) return 64;
  if (share <= 32) return 128;
  if (share <= 64) return 192;
  return static_cast<std::uint32_t>(ceil_div(share, 256U) * 256);
}

}  // namespace

std::uint32_t flashinfer_tile_q(double average_packed_len, std::uint32_t head_dim) {
  if (average_packed_len > 64 && head_dim < 256) return 128;
  return average_packed_len > 16 ? 64 : 16;
}

void plan_flashinfer_mla_decode(std::span<const std::uint32_t> seq_lens, std::uint32_t heads,
                                std::uint32_t multiprocessors, DecodePlan& plan) {
  const std::uint32_t cluster = heads > kMlaTile ? 2 : 1;
  const std::uint32_t clusters = multiprocessors / cluster;
  const std::uint32_t tiles = ceil_div(heads, kMlaTile * cluster);  // of a request
  plan.rows = kMlaTile;
  plan.blocks_per_split = tiles * cluster;
  std::uint64_t total = 0;
  for (const std::uint32_t length : seq_lens) total += std::uint64_t{tiles} * length;
  const std::uint32_t part = part_length(total, clusters);
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> load;
  for (std::uint32_t i = 0; i < clusters; ++i) load.push(0);
  for (std::uint32_t i = 0; i < seq_lens.size(); ++i) {
    const std::uint32_t length = seq_lens[i];
    const std::uint32_t splits = std::max(1U, ceil_div(length, part));
    plan.items.push_back({i, 0, length, splits, std::min(part, length)});
    plan.merge = plan.merge || splits > 1;
    for (std::uint32_t tile = 0; tile < tiles; ++tile) {
      for (std::uint32_t at = 0; at < length; at += part) {
        // A part costs twice its query rows and its KV tokens (cost_function of the planner).
        const std::uint64_t tokens =
            load.top() + std::min(part, length - at) + std::uint64_t{2} * kMlaTile * cluster;
        load.pop();
        load.push(tokens);
        plan.busiest_block = std::max(plan.busiest_block, tokens);
      }
    }
  }
}

void plan_flashinfer_mla_extend(const proto::HardwareProfile& profile, const LayerShape& layer,
                                ExtendPlan& plan) {
  const std::uint32_t heads = layer.num_q_heads;
  std::uint64_t tokens = 0;
  for (const ExtendItem& item : plan.items) tokens += item.q_len;
  if (layer.form == AttentionForm::kMlaExpanded) {  // heads are not packed
    plan.head_blocks = heads;
    plan.rows = plan.tile_m =
        profile.architecture() == "blackwell" ? 256  // two tiles of 128 query tokens
        : profile.architecture() == "hopper"
            ? 128
            : flashinfer_tile_q(double(tokens) / double(plan.items.size()), layer.head_dim);
    plan.tile_n = profile.architecture() == "blackwell" || profile.architecture() == "hopper" ? 128 : 64;
    return;
  }
  const std::uint32_t cluster = tokens * heads / plan.items.size() > kMlaTile ? 2 : 1;
  plan.rows = kMlaTile * cluster;
  plan.tile_m = std::max(1U, plan.rows / heads);
  plan.tile_n = kMlaTile;
  plan.head_blocks = ceil_div(heads, plan.rows);
  plan.widens_kv = layer.widens_latent();
  std::uint64_t total = 0;
  for (const ExtendItem& item : plan.items) total += tile_tokens(plan, item, 0);
  plan.kv_chunk = part_length(total * plan.head_blocks, profile.multiprocessors() / cluster);
}

void FlashInferMlaBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  add_extend_items(plan);
  plan_flashinfer_mla_extend(profile(), layer, plan);
}

}  // namespace tpsim::attention::backends
