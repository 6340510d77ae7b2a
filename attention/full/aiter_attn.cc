// AMD's AITER kernels.
#include "attention/full/full_attention.h"

namespace tpsim::attention::full {

extern const FullAttentionDescription aiter_attn = {
    .name = "aiter_attn",
    .backend = "aiter",
    .devices = {GpuGeneration::kRocm},
    .default_on = {GpuGeneration::kRocm},  // with SGLANG_USE_AITER, as in SGLang's images for these devices
};

}  // namespace tpsim::attention::full
