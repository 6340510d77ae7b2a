#include "attention/flashinfer.h"

#include <algorithm>
#include <cmath>

namespace tpsim::attention {
namespace {

constexpr std::uint32_t kBlocksPerMultiprocessor = 2;
constexpr std::uint32_t kMinChunk = 128;  // tokens

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

FlashInferBackend::FlashInferBackend(const proto::HardwareProfile& profile, std::uint32_t page_size)
    : PlannedBackend("flashinfer", profile, page_size) {}

std::uint32_t FlashInferBackend::cta_tile_q(double average_packed_len, std::uint32_t head_dim) {
  if (average_packed_len > 64 && head_dim < 256) return 128;
  return average_packed_len > 16 ? 64 : 16;
}

void FlashInferBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const auto& lengths = metadata().decode_seq_lens;
  // SGLang's kernel works on page size 1 whatever the pool's page size is: lengths are tokens.
  const std::uint32_t blocks = layer.num_kv_heads;
  plan.blocks_per_split = blocks;
  std::uint32_t longest = 1;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) {
    plan.items.push_back(decode_item(i, lengths[i], layer));
    longest = std::max(longest, plan.items.back().split_tokens);
  }
  const std::uint64_t room = std::uint64_t{kBlocksPerMultiprocessor} * multiprocessors();
  if (lengths.size() * blocks >= room) return;
  std::uint32_t low = std::min(kMinChunk, longest);
  std::uint32_t high = longest;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    std::uint64_t needed = 0;
    for (const DecodeItem& item : plan.items) needed += ceil_div(item.kv_end - item.kv_begin, middle);
    if (needed * blocks > room) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (DecodeItem& item : plan.items) {
    item.splits = std::max(1U, ceil_div(item.kv_end - item.kv_begin, low));
    item.split_tokens = std::min(low, item.kv_end - item.kv_begin);
    plan.merge = plan.merge || item.splits > 1;
  }
}

void FlashInferBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  add_extend_items(plan);
  const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
  double packed = 0;
  for (const ExtendItem& item : plan.items) packed += double(item.q_len) * group;
  const std::uint32_t rows =
      cta_tile_q(packed / std::max<double>(1, double(plan.items.size())), layer.head_dim);
  pack_heads(rows, layer, plan);
  plan.tile_n = layer.head_dim >= 256 ? 32 : 64;
  // KV is cut into chunks where the tiles alone do not fill the device.
  const ExtendSize size = extend_size(plan, layer);
  const std::uint64_t blocks = size.tiles * ceil_div(layer.num_q_heads, plan.packed_heads);
  const std::uint64_t room = std::uint64_t{kBlocksPerMultiprocessor} * multiprocessors();
  const std::uint64_t chunks = std::max<std::uint64_t>(1, ceil_div(size.longest, kMinChunk));
  plan.splits = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(room / std::max<std::uint64_t>(1, blocks), 1, chunks));
}

// The plan's arrays are copied to the device: one copy and the kernel that builds the page indices.
KernelCost FlashInferBackend::plan_cost() const { return {2 * 2e-6, 0, 0, 2}; }

// Host time of plan(), a fixed part and a walk over the batch: least squares over the plan_us column of
// tests/calibration/measured/h200-sxm_attention.csv.
double FlashInferBackend::plan_host_seconds() const {
  const auto requests =
      static_cast<double>(metadata().extend_lens.size() + metadata().decode_seq_lens.size());
  return metadata().forward_mode == proto::DECODE ? 180e-6 + 3.0e-6 * requests : 420e-6 + 8.6e-6 * requests;
}

}  // namespace tpsim::attention
