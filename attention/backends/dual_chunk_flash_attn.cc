// Dual chunk attention (Qwen2.5-1M) on FlashAttention kernels: three calls over the parts of the KV range
// (own chunk, chunk before, all before that), merged by PyTorch.
//
// Source: SGLang 0.5.12, layers/attention/dual_chunk_flashattention_backend.py (later releases have it no
// more). Its sparse variant is not here: a model's config that asks for it is refused.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"

namespace tpsim::attention::backends {
namespace {

class DualChunkBackend : public PlannedBackend {
  // Kernels beside those of attention, counted in dual_chunk_flashattention_backend.py: of a decode call (its
  // scheduler, the kernel, two masked fills); three kinds of queries scaled and rounded, and the keys; of a
  // merge (stack twice, max, subtract, exp, sum, divide, weigh, add up); of a prefill part (gathers of K and
  // V, two lengths, scheduler, kernel); of a prefill head (its factor read back, chunks joined, copy out).
  static constexpr std::uint32_t kCallLaunches = 4;
  static constexpr std::uint32_t kScaleLaunches = 7;
  static constexpr std::uint32_t kMergeLaunches = 9;
  static constexpr std::uint32_t kPartLaunches = 6;
  static constexpr std::uint32_t kHeadLaunches = 3;
  // Operations of the host that make decode's block tables, request by request: an element of a tensor is
  // taken, computed with and read back for each bound of a slice. A read counts twice: it waits, too.
  static constexpr double kPassOperations = 30;
  static constexpr double kOwnOperations = 18;
  static constexpr double kSuccOperations = 20;

 public:
  using PlannedBackend::PlannedBackend;

  KernelCost decode_cost(const PlanCost& model, const DecodePlan& plan, const LayerShape& layer) override;
  KernelCost extend_cost(const PlanCost& model, const ExtendPlan& plan, const LayerShape& layer) override;
  double plan_host_seconds() const override;
  HostCost host_cost() const override;

 protected:
  // Without chunks a sequence is one.
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override;
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override;

 private:
  FlashSplits most_splits_{multiprocessors()};
  DecodePlan one_decode_;
  ExtendPlan one_extend_;
  bool succ_ = false;  // some request of the decode planned last is beyond its first chunk
};

// flash_attn_with_kvcache once for each part, which splits the KV range as in fa3.
void DualChunkBackend::plan_decode(const LayerShape& layer, DecodePlan& plan) {
  const std::uint32_t chunk = layer.dual_chunk_len;
  succ_ = false;
  const auto& lengths = metadata().decode_seq_lens;
  if (chunk == 0) add_decode_items(layer, plan);
  for (std::uint32_t i = 0; chunk != 0 && i < lengths.size(); ++i) {
    const std::uint32_t own = (lengths[i] - 1) / chunk * chunk;
    const std::uint32_t before = own > 0 ? own - chunk : 0;
    succ_ = succ_ || own > 0;
    plan.items.push_back({i, own, lengths[i], 1, lengths[i] - own});
    plan.succ_items.push_back({i, before, own, 1, own - before});
    plan.inter_items.push_back({i, 0, before, 1, before});
  }
  flash3_decode_blocks(layer, plan);
  for (std::vector<DecodeItem>* part : {&plan.items, &plan.succ_items, &plan.inter_items}) {
    plan.merge |= flash3_split(plan.blocks_per_split, flash3_tile_n(layer.head_dim), most_splits_, *part);
  }
}

// One query head at a time, in flash_attn_varlen_func's tiles, which are not split.
void DualChunkBackend::plan_extend(const LayerShape& layer, ExtendPlan& plan) {
  plan.chunk_len = layer.dual_chunk_len;
  add_extend_items_by_head(flash3_tile_m(layer.head_dim), flash3_tile_n(layer.head_dim), layer, plan);
}

KernelCost DualChunkBackend::decode_cost(const PlanCost& model, const DecodePlan& plan,
                                         const LayerShape& layer) {
  KernelCost cost;
  if (plan.items.empty()) return cost;
  const bool captured = metadata().capture_bucket > 0;  // with all parts
  std::uint32_t parts = 0;
  for (const std::vector<DecodeItem>* part : {&plan.items, &plan.succ_items, &plan.inter_items}) {
    one_decode_ = plan;
    one_decode_.items.clear();
    one_decode_.merge = false;
    for (const DecodeItem& item : *part) {
      if (item.kv_begin == item.kv_end) continue;
      one_decode_.items.push_back(item);
      one_decode_.merge = one_decode_.merge || item.splits > 1;
    }
    if (one_decode_.items.empty() && !captured) continue;
    cost += model.decode(one_decode_, layer);
    cost.launches += kCallLaunches - (one_decode_.items.empty() ? 0 : 1);
    ++parts;
  }
  // Outputs of the parts are stacked, weighed in place and added up.
  const double outputs =
      static_cast<double>(plan.items.size()) * layer.num_q_heads * layer.v_head_dim * layer.q_bytes;
  cost += model.gather((2 + 2 + 1) * parts * outputs, layer);
  cost.launches += kMergeLaunches + kScaleLaunches;
  return cost;
}

KernelCost DualChunkBackend::extend_cost(const PlanCost& model, const ExtendPlan& plan,
                                         const LayerShape& layer) {
  KernelCost cost;
  LayerShape head = layer;
  head.num_q_heads = head.num_kv_heads = 1;
  const double width = double(layer.head_dim) + layer.v_head_dim;
  one_extend_ = plan;
  one_extend_.head_blocks = 1;
  one_extend_.chunk_len = 0;
  constexpr std::uint32_t kOneChunk = 1U << 30;
  const std::uint32_t chunk_len = plan.chunk_len > 0 ? plan.chunk_len : kOneChunk;
  for (const ExtendItem& item : plan.items) {
    KernelCost of_head;
    const std::uint32_t end = item.prefix + item.q_len;
    for (std::uint32_t at = item.prefix; at < end;) {
      const std::uint32_t own = at / chunk_len * chunk_len;
      const std::uint32_t stop = std::min(own + chunk_len, end);
      const std::uint32_t before = own > 0 ? own - chunk_len : 0;
      one_extend_.items.assign(1, {item.request, at - own, stop - at});
      KernelCost chunk = model.extend(one_extend_, head);
      for (const std::uint32_t tokens : {own - before, before}) {
        if (tokens > 0) chunk += model.extend_all(one_extend_, stop - at, tokens, head);
      }
      // K and V of the head are copied together before they are read.
      chunk += model.gather(2.0 * stop * width * layer.kv_bytes(), head);
      const std::uint32_t parts = 1 + (own > 0 ? 1 : 0) + (before > 0 ? 1 : 0);
      chunk.launches = parts * kPartLaunches + (parts > 1 ? kMergeLaunches : 0);
      if (parts > 1)
        chunk += model.gather(5.0 * parts * (stop - at) * layer.v_head_dim * layer.q_bytes, head);
      of_head += chunk;
      at = stop;
    }
    of_head += model.gather(4.0 * item.q_len * layer.v_head_dim * layer.q_bytes, head);  // joined, copied out
    of_head.launches += kHeadLaunches;
    for (std::uint32_t h = 0; h < layer.num_q_heads; ++h) cost += of_head;
    cost.launches += 2;  // keys scaled, requests joined
  }
  return cost;
}

double DualChunkBackend::plan_host_seconds() const {
  if (metadata().forward_mode != proto::DECODE) return 0;
  double operations =
      kPassOperations + kOwnOperations * static_cast<double>(metadata().decode_seq_lens.size());
  if (succ_) operations += kSuccOperations * static_cast<double>(metadata().decode_seq_lens.size());
  return operations * profile().kernel_launch_seconds();
}

// Prefill reads its lengths back in every layer.
HostCost DualChunkBackend::host_cost() const {
  HostCost cost = PlannedBackend::host_cost();
  cost.synchronous = metadata().forward_mode != proto::DECODE;
  return cost;
}

}  // namespace

extern const BackendDescription dual_chunk_flash_attn = {
    .row = {.name = "dual_chunk_flash_attn",
            .title = "Dual Chunk FlashAttention",
            .mha_place = 8,
            .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper},
            .dropped = true,
            .has_mha = true,
            .dual_chunk = true},
    .create = create_backend<DualChunkBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.dual_chunk ? "dual chunk attention: no other backend of SGLang computes it" : "";
    },
};

}  // namespace tpsim::attention::backends
