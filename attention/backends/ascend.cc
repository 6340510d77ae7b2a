// Huawei Ascend's kernels; its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kNpu ? "NPU: ascend is SGLang's default" : "";
}

}  // namespace

extern const BackendDescription ascend = {
    .row = {.name = "ascend",
            .title = "Ascend (NPU)",
            .generations = {GpuGeneration::kNpu},
            .has_mha = true,
            .multimodal = Support::kYes,
            .has_mla = true,
            .mla_page_sizes = {128}},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
