// Dual chunk attention (Qwen2.5-1M); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.dual_chunk ? "dual chunk attention: no other backend of SGLang computes it" : "";
}

}  // namespace

extern const BackendDescription dual_chunk_flash_attn = {
    .row = {.name = "dual_chunk_flash_attn",
            .title = "Dual Chunk FlashAttention",
            .mha_place = 8,
            .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper},
            .has_mha = true,
            .dual_chunk = true},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
