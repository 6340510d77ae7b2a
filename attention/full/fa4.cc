// FlashAttention 4.
#include "attention/full/flash_head_dim.h"
#include "attention/full/full_attention.h"

namespace tpsim::attention::full {

extern const FullAttentionDescription fa4 = {
    .name = "fa4",
    .backend = "fa4",
    .devices = {GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
    .default_on = {GpuGeneration::kBlackwell},
    .computed_head_dim = flash_head_dim,
};

}  // namespace tpsim::attention::full
