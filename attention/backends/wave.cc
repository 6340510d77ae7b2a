// Wave: kernels that IREE's wave_lang compiles for AMD GPUs.
//
// Facts from the public sources of wave_lang (kernel/wave/templates/paged_decode_attention.py,
// extend_attention.py) and of SGLang's wave_backend.py, wave_ops/decode_attention.py, extend_attention.py:
// - decode has two phases. The first cuts the KV of every request, long or short, into 8 equal parts
//   (--triton-attention-num-kv-splits; the number that SGLang works out for each request is not passed on);
//   a block has up to 64 query heads of one KV head in four waves, or one head on the vector units where
//   every query head has its own KV head. The second phase always adds the parts up;
// - the extend kernel walks the cached prefix and then the new tokens, in tiles of 64 query rows where the
//   longest request has at most 128 new tokens and of 128 otherwise, KV steps of 32. The grid has as many
//   tiles for every request as the longest one needs, and all of them walk the prefix.
// Kernels are compiled per shape and found again in a cache. Tokens are read one by one, whatever the page
// size. Decode is captured.
#include <cstdint>

#include "attention/backend_description.h"
#include "attention/planned_backend.h"
#include "attention/split_heuristics.h"
#include "proto/base/ceil_div.h"

namespace tpsim::attention::backends {
namespace {

class WaveBackend : public PlannedBackend {
  static constexpr std::uint32_t kKvSplits = 8;
  static constexpr std::uint32_t kHeadBlock = 64;  // query heads of a block: 16 of each of four waves

 public:
  using PlannedBackend::PlannedBackend;

 protected:
  void plan_decode(const LayerShape& layer, DecodePlan& plan) override {
    const std::uint32_t group = ceil_div(layer.num_q_heads, layer.num_kv_heads);
    plan.tensor_cores = group > 1;
    plan.rows = group > 1 ? kHeadBlock : 1;
    plan.blocks_per_split = layer.num_kv_heads * ceil_div(group, plan.rows);
    add_decode_items(layer, plan);
    split_in_steps(kKvSplits, 1, plan);
    plan.merge = true;
  }
  void plan_extend(const LayerShape& layer, ExtendPlan& plan) override {
    const std::uint32_t longest = add_extend_items(plan);
    plan.rows = plan.tile_m = longest <= 128 ? 64 : 128;
    plan.tile_n = 32;
    plan.head_blocks = layer.num_q_heads;
    plan.grid_tiles = ceil_div(longest, plan.tile_m);
  }
};

}  // namespace

extern const BackendDescription wave = {
    .row = {.name = "wave",
            .title = "Wave (ROCm)",
            .mha_place = 10,
            .generations = {GpuGeneration::kRocm},
            .has_mha = true,
            .plan_kernels = 2},
    .create = create_backend<WaveBackend>,
};

}  // namespace tpsim::attention::backends
