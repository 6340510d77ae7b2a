// Dual chunk attention (Qwen2.5-1M); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {

extern const BackendDescription dual_chunk_flash_attn = {
    .row = {.name = "dual_chunk_flash_attn",
            .title = "Dual Chunk FlashAttention",
            .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper},
            .has_mha = true},
};

}  // namespace tpsim::attention::backends
