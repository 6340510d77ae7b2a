// AMD's AITER kernels; its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kRocm ? "ROCm: aiter is SGLang's default" : "";
}

}  // namespace

extern const BackendDescription aiter = {
    .row = {.name = "aiter",
            .title = "AITER (ROCm)",
            .generations = {GpuGeneration::kRocm},
            .has_mha = true,
            .mha_fp8 = Support::kYes,
            .mha_spec = Support::kYes,
            .mha_spec_topk = Support::kYes,
            .multimodal = Support::kYes},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
