// Intel GPU kernels; its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kXpu ? "XPU: intel_xpu is SGLang's default" : "";
}

}  // namespace

extern const BackendDescription intel_xpu = {
    .row = {.name = "intel_xpu",
            .title = "Intel XPU",
            .generations = {GpuGeneration::kXpu},
            .has_mha = true,
            .sliding_window = Support::kYes},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
