// Intel CPUs with AMX: sgl-kernel's CPU attention; SGLang's default there.
//
// Facts from the public sources of sgl-kernel (csrc/cpu/decode.cpp: decode_attention_grouped_kernel_impl,
// extend.cpp: extend_attention_kernel_impl and its table of block sizes) and of SGLang's
// intel_amx_backend.py:
// - decode: the KV of every request is cut into 8 equal parts (num_kv_splits), whose pairs with KV heads and
//   blocks of up to 16 query heads (four times the batch size where that is less) the cores share; steps of
//   256 tokens on the vector units (AVX-512 BF16). A second loop adds the parts up;
// - prefill: the cores share the blocks of query rows of every head. Rows and KV steps grow with the longest
//   request: 32 x 64 up to 256 new tokens, 128 x 256 up to 1,024, 256 x 768 up to 4,096, then 512 x 768; AMX
//   multiplies packed copies of keys and values. A block walks the cached prefix, then the new tokens.
// Tokens are read one by one. "multiprocessors" of the hardware profile are cores. Passes are not captured.
#include <algorithm>
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class IntelAmxBackend : public PlannedBackend {
  static constexpr std::uint32_t kKvSplits = 8;
  static constexpr std::uint32_t kHeadBlock = 16;

 public:
  using PlannedBackend::PlannedBackend;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    const auto block = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(4 * metadata().decode_seq_lens.size(), kHeadBlock));
    plan.tensor_cores = false;
    plan.rows = std::min(group, block);
    plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, block);
    add_decode_items(layer, plan);
    split_in_steps(kKvSplits, 1, plan);
    plan.merge = true;
  }
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override {
    const std::uint32_t longest = add_extend_items(plan);
    plan.tile_m = longest <= 256 ? 32 : longest <= 1024 ? 128 : longest <= 4096 ? 256 : 512;
    plan.tile_n = longest <= 256 ? 64 : longest <= 1024 ? 256 : 768;
    plan.rows = plan.tile_m;
    plan.head_blocks = layer.num_q_heads;
  }
};

}  // namespace

extern const BackendDescription intel_amx = {
    .row = {.name = "intel_amx",
            .title = "Intel AMX (CPU)",
            .mha_place = 13,
            .generations = {GpuGeneration::kCpu},
            .supports_cuda_graph = false,
            .has_mha = true,
            .mha_page_sizes = {1},
            .sinks = true,
            .wide_heads = true},
    .create = create_backend<IntelAmxBackend>,
    .chosen_for = [](const Selection& selection) -> std::string_view {
      return selection.generation == GpuGeneration::kCpu ? "CPU: intel_amx is SGLang's default" : "";
    },
};

}  // namespace tpsim::attention::backends
