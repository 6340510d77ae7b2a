// Intel GPUs: the SYCL flash attention of sgl-kernel-xpu; SGLang's default there.
//
// Facts from the public sources of sgl-kernel-xpu (src/sycl/kernels/flash_attention_v2: fmha_tile_dispatch.h,
// xe_fmha_fwd_decode_dispatch.hpp, and get_num_splits of its flash attention entry) and of SGLang's
// xpu_backend.py, which passes num_splits 0:
// - decode: a work group has up to 16 query heads of one KV head and reads a page in each step. Longer
//   sequences than 64 pages are cut into as many parts as fill the Xe cores once, or nearly twice where once
//   does not come out even; a second kernel adds them up;
// - prefill: tiles of 128 query rows of one head for head sizes up to 96, else 256, KV steps of 64 tokens (32
//   for head size 128).
// Pages of 64 or 128 tokens are read as they are. Passes are not captured.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class IntelXpuBackend : public PlannedBackend {
  static constexpr std::uint32_t kHeadBlock = 16;   // query heads of a work group
  static constexpr std::uint32_t kLeastPages = 64;  // up to which a sequence is not cut
  static constexpr std::uint32_t kSmallestPage = 64;

 public:
  using PlannedBackend::PlannedBackend;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    const auto& lengths = metadata().decode_seq_lens;
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    plan.rows = 1;
    while (plan.rows < group && plan.rows < kHeadBlock) plan.rows *= 2;
    plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
    const std::uint32_t longest = add_decode_items(layer, plan);
    const std::uint32_t page = std::max(page_size(), kSmallestPage);
    const std::uint32_t pages = ceil_div(longest, page);
    if (pages <= kLeastPages) return;
    const std::uint32_t cores = multiprocessors();
    const std::uint32_t busy = static_cast<std::uint32_t>(lengths.size()) * layer.num_kv_heads;
    std::uint32_t splits = ceil_div(cores, busy);
    if (splits > 1 && busy * splits > cores) splits = ceil_div(2 * cores, busy) - 1;
    splits = std::max(1U, std::min({splits, pages, cores}));
    split_in_steps(splits, page, plan);
  }
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override {
    const std::uint32_t step = layer.head_dim > 96 && layer.head_dim <= 128 ? 32 : 64;
    add_extend_items_by_head(layer.head_dim <= 96 ? 128 : 256, step, layer, plan);
  }
};

}  // namespace

extern const BackendDescription intel_xpu = {
    .row = {.name = "intel_xpu",
            .title = "Intel XPU",
            .mha_place = 12,
            .generations = {GpuGeneration::kXpu},
            .supports_cuda_graph = false,
            .has_mha = true,
            .sliding_window = Support::kYes,
            .sinks = true,
            .attention_chunk = true,
            .local_attention = true,
            .wide_heads = true,
            .pool_pages = {64, 128},
            .plan_kernels = 2},
    .create = create_backend<IntelXpuBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.generation == GpuGeneration::kXpu ? "XPU: intel_xpu is SGLang's default" : "";
    },
};

}  // namespace tpsim::attention::backends
