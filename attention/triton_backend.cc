#include "attention/triton_backend.h"

#include <algorithm>
#include <cmath>

namespace tpsim::attention {
namespace {

constexpr std::uint32_t kMaxKvSplits = 8;
constexpr std::uint32_t kBlockH = 16;  // query heads of one block
constexpr std::uint32_t kMinBlockKv = 32;

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

TritonBackend::TritonBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
    : PlannedBackend("triton", profile, page_size) {}

void TritonBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  const std::uint32_t head_blocks =
      group == 1 ? layer.num_q_heads : layer.num_kv_heads * ceil_div(group, std::min(kBlockH, group));
  plan.blocks_per_split = head_blocks;
  plan.tensor_cores = group > 1;
  plan.rows = group > 1 ? kBlockH : 1;
  std::uint32_t longest = 1;
  std::uint32_t shortest = 0xffffffffU;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    plan.items.push_back(decode_item(i, lengths[i], layer));
    longest = std::max(longest, plan.items.back().split_tokens);
    shortest = std::min(shortest, plan.items.back().split_tokens);
  }
  // Nearly equal lengths count as equal. Then two chunk sizes: one that evens out the lengths, and one that
  // fills the device, which counts for more the longer the sequences are.
  if (longest * 8 < shortest * 10) shortest = longest;
  const std::uint32_t even = std::min(ceil_div(longest, std::max(1U, shortest)), kMaxKvSplits);
  const std::uint32_t even_chunk = ceil_div(longest, even);
  const double growth = std::max(std::log2(std::max(longest / 64.0, 1.0)), 1.0);
  const auto cores = static_cast<std::uint64_t>(multiprocessors() * growth);
  const std::uint64_t grid = lengths.size() * head_blocks;
  const auto fill =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>((cores + grid - 1) / grid, 1, kMaxKvSplits));
  const std::uint32_t fill_chunk = ceil_div(longest, fill);
  for (DecodeItem& item : plan.items) {
    const std::uint32_t tokens = item.kv_end - item.kv_begin;
    const std::uint32_t splits = std::max(ceil_div(tokens, even_chunk), ceil_div(tokens, fill_chunk));
    item.split_tokens = ceil_div(ceil_div(tokens, std::max(1U, splits)), kMinBlockKv) * kMinBlockKv;
    item.splits = std::max(1U, ceil_div(tokens, item.split_tokens));
  }
  plan.merge = true;  // the second stage always runs
  // The grid has the most splits for every request. MHA's blocks are light, and their coefficients know it.
  if (layer.form == AttentionForm::kMlaAbsorbed) plan.launched_splits = kMaxKvSplits;
}

void TritonBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  // Block sizes by architecture and head size: extend_attention.py.
  const std::string& architecture = profile().architecture();
  if (architecture == "hopper" || architecture == "blackwell") {
    plan.tile_m = layer.head_dim <= 256 ? 128 : architecture == "hopper" ? 32 : 16;
    plan.tile_n = 64;
  } else if (architecture == "ampere") {
    plan.tile_m = layer.head_dim <= 128 ? 128 : layer.head_dim <= 256 ? 64 : 32;
    plan.tile_n = layer.head_dim <= 128 ? 128 : 64;
  } else if (architecture == "ada") {
    plan.tile_m = layer.head_dim <= 256 ? 64 : 32;
    plan.tile_n = layer.head_dim <= 128 ? 128 : layer.head_dim <= 256 ? 64 : 32;
  } else {
    plan.tile_m = layer.head_dim <= 128 ? 64 : 32;
    plan.tile_n = plan.tile_m;
  }
  plan.rows = plan.tile_m;
  plan.head_blocks = layer.num_q_heads;
  add_extend_items(plan);
  std::uint32_t longest = 0;
  for (const ExtendItem& item : plan.items) longest = std::max(longest, item.q_len);
  plan.grid_tiles = ceil_div(longest, plan.tile_m);
}

// get_num_kv_splits and the kernel that builds the token indices.
KernelCost TritonBackend::plan_cost() const { return {2 * 2e-6, 0, 0, 2}; }

}  // namespace tpsim::attention
