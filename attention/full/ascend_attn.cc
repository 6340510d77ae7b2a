// Huawei Ascend: torch_npu's fused attention operator.
#include "attention/full/full_attention.h"

namespace tpsim::attention::full {

extern const FullAttentionDescription ascend_attn = {
    .name = "ascend_attn",
    .backend = "ascend",
    .devices = {GpuGeneration::kNpu},
    .default_on = {GpuGeneration::kNpu},
};

}  // namespace tpsim::attention::full
