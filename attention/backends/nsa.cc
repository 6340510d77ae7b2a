// DeepSeek sparse attention (V3.2, GLM-5); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {
namespace {

std::string_view chosen_for(const Selection& selection) {
  return selection.sparse ? "DeepSeek sparse attention: nsa is SGLang's default" : "";
}

}  // namespace

extern const BackendDescription nsa = {
    .row = {.name = "nsa",
            .alias = "dsa",
            .title = "NSA (DeepSeek V3.2 sparse attention)",
            .generations = {GpuGeneration::kHopper, GpuGeneration::kBlackwell},
            .sparse = true,
            .fp8_e5m2 = false,
            .fp8_by_default = {GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
            .pool_pages = {64}},
    .chosen_for = chosen_for,
};

}  // namespace tpsim::attention::backends
