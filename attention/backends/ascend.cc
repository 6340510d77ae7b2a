// Huawei Ascend: torch_npu's fused attention operators; SGLang's default on NPUs.
//
// Facts from SGLang's hardware_backend/npu/attention/ascend_backend.py and from the tiling code of CANN's
// ops-transformer (incre_flash_attention_tiling: IsFlashDecode, SplitBNS, SplitBN):
// - decode: npu_fused_infer_attention_score over pages of 128 tokens. The AI cores share the pairs of request
//   and KV head, all query heads of the group together. The KV of a request is cut only where those pairs
//   occupy less than 0.4 of the cores and the longest sequence is longer than 1,024 tokens (2,048 with
//   grouped queries): into as many parts as there are cores for a pair, none shorter than 256 tokens, added
//   up inside the operator;
// - prefill: _npu_flash_attention_qlens, tiles of 128 query rows of one head and KV steps of 128 tokens with
//   a compressed causal mask.
// Decode is captured (NPU graphs). Lengths are passed as host lists, so that the host waits for them.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class AscendBackend : public PlannedBackend {
  static constexpr std::uint32_t kLeastPart = 256;     // tokens
  static constexpr double kFewPairs = 0.4;             // of the cores
  static constexpr std::uint32_t kLongPaged = 1024;    // tokens, beyond which a paged cache is cut at all
  static constexpr std::uint32_t kLongGrouped = 2048;  // from which it is cut with grouped queries

 public:
  using PlannedBackend::PlannedBackend;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    const auto& lengths = metadata().decode_seq_lens;
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    plan.rows = std::max(16U, group);  // of the cube unit's fractal
    plan.blocks_per_split = layer.num_kv_heads;
    const std::uint32_t longest = add_decode_items(layer, plan);
    const std::uint64_t pairs = std::uint64_t{lengths.size()} * layer.num_kv_heads;
    const bool few = static_cast<double>(pairs) < kFewPairs * multiprocessors();
    if (!few || longest <= kLongPaged || (group > 1 && longest < kLongGrouped)) return;
    auto parts = static_cast<std::uint32_t>(multiprocessors() / pairs);
    while (parts > 1 && longest / parts < kLeastPart) --parts;
    split_in_steps(parts, 1, plan);
    plan.merge_in_kernel = plan.merge;
  }
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override {
    add_extend_items_by_head(128, 128, layer, plan);
  }
};

}  // namespace

extern const BackendDescription ascend = {
    .row = {.name = "ascend",
            .title = "Ascend (NPU)",
            .mla_title = "Ascend MLA (NPU)",
            .mha_place = 11,
            .mla_place = 8,
            .generations = {GpuGeneration::kNpu},
            .has_mha = true,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_page_sizes = {128},
            .sinks = true,
            .attention_chunk = true,
            .wide_heads = true,
            .narrow_values = true,
            .pool_pages = {128},
            .plan_kernels = 1,
            // MHA_NPU: every extend is expanded, a cached prefix in one further part of the ring operator.
            .mla_rule = {.prefix = MlaPrefix::kExpanded}},
    .create = create_backend<AscendBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.generation == GpuGeneration::kNpu ? "NPU: ascend is SGLang's default" : "";
    },
};

}  // namespace tpsim::attention::backends
