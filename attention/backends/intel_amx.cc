// Intel CPU kernels with AMX; its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.generation == GpuGeneration::kCpu ? "CPU: intel_amx is SGLang's default" : "";
}

}  // namespace

extern const BackendDescription intel_amx = {
    .row = {.name = "intel_amx",
            .title = "Intel AMX (CPU)",
            .generations = {GpuGeneration::kCpu},
            .has_mha = true,
            .mha_page_sizes = {1}},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
