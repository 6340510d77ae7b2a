// TensorRT-LLM's generated MLA kernels (Blackwell); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kBlackwell && selection.mla
             ? "Blackwell: trtllm_mla is SGLang's default for MLA models"
             : "";
}

}  // namespace

extern const BackendDescription trtllm_mla = {
    .row = {.name = "trtllm_mla",
            .title = "TRTLLM MLA (Blackwell)",
            .mla_place = 4,
            .generations = {GpuGeneration::kBlackwell},
            .has_mla = true,
            .mla_page_sizes = {32, 64},
            .mla_fp8 = Support::kYes,
            .mla_fp4 = Support::kYes,
            .mla_chunked_prefix = Support::kYes,
            .mla_spec = Support::kYes,
            .fp8_e5m2 = false},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
