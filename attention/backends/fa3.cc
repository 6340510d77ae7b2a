// FlashAttention 3 (Hopper): paged variable-length kernel, the default of SGLang on Hopper.
//
// Facts from the public sources of flash-attention (hopper/heuristics.h, tile_size.h,
// flash_prepare_scheduler.cu) and of SGLang's flashattention_backend.py: query tiles of 128 rows (192 for
// head size 64), KV steps by head size; decode packs the query heads of one KV head into a tile; the number
// of KV splits comes from how far the blocks of the longest sequence fill the multiprocessors, and is then
// lowered per request by a small kernel that runs before the attention.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"

namespace tpsim::attention::backends {
namespace {

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

std::uint32_t tile_m(std::uint32_t head_dim) { return head_dim <= 64 ? 192 : 128; }

std::uint32_t tile_n(std::uint32_t head_dim) {
  if (head_dim <= 128) return 128;
  return head_dim <= 192 ? 96 : 80;
}

class Fa3Backend : public PlannedBackend {
 public:
  Fa3Backend(const proto::HardwareProfile& profile, std::uint32_t page_size)
      : PlannedBackend("fa3", profile, page_size) {}

  KernelCost plan_cost() const override;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;

 private:
  std::uint32_t steps_per_block(std::uint64_t steps) const;
};

// flash_prepare_scheduler: as many KV steps in a block as fill the device once, with a tenth to spare.
std::uint32_t Fa3Backend::steps_per_block(std::uint64_t steps) const {
  return std::max(
      1U, static_cast<std::uint32_t>(std::ceil(static_cast<double>(steps) * 1.1 / multiprocessors())));
}

void Fa3Backend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t step = tile_n(layer.head_dim);
  // The query heads of a KV head are packed into the rows of one tile (pack_gqa); up to 64 rows of 128-wide
  // heads take the kernel with one matrix warpgroup.
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = layer.head_dim == 128 && group <= 64 ? 64 : tile_m(layer.head_dim);
  plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
  std::uint32_t longest = 0;
  std::uint64_t steps = 0;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    plan.items.push_back(decode_item(i, lengths[i], layer));
    const std::uint32_t tokens = plan.items.back().split_tokens;
    longest = std::max(longest, tokens);
    steps += ceil_div(tokens, step);
  }
  // An upper bound first, as if the longest sequence were alone: the others may be short.
  const std::uint32_t most =
      flash_num_splits(plan.blocks_per_split, multiprocessors(), ceil_div(longest, step));
  if (most == 1) return;
  const std::uint32_t per_block = steps_per_block(steps * plan.blocks_per_split);
  for (DecodeItem& item : plan.items) {
    const std::uint32_t item_steps = ceil_div(item.split_tokens, step);
    item.splits = std::clamp(ceil_div(item_steps, per_block), 1U, most);
    if (item.splits == 1) continue;
    item.split_tokens = ceil_div(item_steps, item.splits) * step;
    item.splits = ceil_div(item.kv_end - item.kv_begin, item.split_tokens);
    plan.merge = true;
  }
}

void Fa3Backend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  plan.rows = tile_m(layer.head_dim);
  plan.tile_m = std::max(1U, plan.rows / group);  // packed, as in every batch of unequal lengths
  plan.head_blocks = layer.num_kv_heads * ceil_div(group, plan.rows);
  plan.tile_n = tile_n(layer.head_dim);
  add_extend_items(plan);
  // Split as in decode. The scheduler counts every tile with the request's whole KV, causal or not.
  std::uint64_t steps = 0;
  std::uint32_t longest = 0;
  for (const ExtendItem& item : plan.items) {
    std::uint32_t reach = item.prefix + item.q_len;
    if (layer.sliding_window != 0) reach = std::min(reach, layer.sliding_window + plan.tile_m);
    longest = std::max(longest, reach);
    steps += std::uint64_t{ceil_div(item.q_len, plan.tile_m)} * ceil_div(reach, plan.tile_n);
  }
  const std::uint32_t longest_steps = ceil_div(longest, plan.tile_n);
  const std::uint32_t most = flash_num_splits(plan.head_blocks, multiprocessors(), longest_steps);
  const std::uint32_t per_block =
      std::max(steps_per_block(steps * plan.head_blocks), ceil_div(longest_steps, most));
  if (per_block < longest_steps) plan.kv_chunk = per_block * plan.tile_n;
}

// Page table, cumulative lengths, and the kernel that decides the splits: three small kernels a pass.
KernelCost Fa3Backend::plan_cost() const { return {3 * 2e-6, 0, 0, 3}; }

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kHopper
             ? "Hopper with CUDA 12.3 or later: fa3 is SGLang's default for MHA and MLA models"
             : "";
}

}  // namespace

extern const BackendDescription fa3 = {
    .row = {.name = "fa3",
            .title = "FlashAttention 3",
            .generations = {GpuGeneration::kHopper},
            .has_mha = true,
            .mha_fp8 = Support::kYes,
            .mha_spec = Support::kYes,
            .mha_spec_topk = Support::kYes,
            .sliding_window = Support::kYes,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes,
            .mla_spec_topk = Support::kPageSizeOneOnly},
    .create = create_backend<Fa3Backend>,
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
