// TensorRT-LLM's generated MHA kernels (Blackwell); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kBlackwell && !selection.mla
             ? "Blackwell: trtllm_mha is SGLang's default for MHA models"
             : "";
}

}  // namespace

extern const BackendDescription trtllm_mha = {
    .row = {.name = "trtllm_mha",
            .title = "TRTLLM MHA",
            .generations = {GpuGeneration::kBlackwell},
            .has_mha = true,
            .mha_page_sizes = {16, 32, 64},
            .mha_fp8 = Support::kYes,
            .mha_fp4 = Support::kYes,
            .mha_spec = Support::kYes,
            .sliding_window = Support::kYes},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
