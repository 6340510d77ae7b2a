// FlashAttention 3.
#include <cstdint>

#include "attention/full/flash_head_dim.h"
#include "attention/full/full_attention.h"
#include "attention/split_heuristics.h"

namespace tpsim::attention::full {

extern const FullAttentionDescription fa3 = {
    .name = "fa3",
    .backend = "fa3",
    .devices = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper},
    .default_on = {GpuGeneration::kHopper},
    .computed_head_dim = flash_head_dim,
    .set_tiles =
        [](GpuGeneration, std::uint32_t head_dim, ExtendPlan& plan) {
          plan.tile_m = plan.rows = flash3_tile_m(head_dim);
          plan.tile_n = flash3_tile_n(head_dim);
        },
    // The kernel of heads of up to 96, which text models' tables do not have, by encoders' times on an H200
    // (heads of 72 and 80, 8,000 to 32,000 patches).
    .factor = [](std::uint32_t head_dim) { return flash_head_dim(head_dim) == 96 ? 1.2 : 1; },
};

}  // namespace tpsim::attention::full
