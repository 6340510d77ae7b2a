// DeepSeek sparse attention (V3.2, GLM-5); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {

extern const BackendDescription nsa = {
    .row = {.name = "nsa",
            .title = "NSA (DeepSeek V3.2 sparse attention)",
            .generations = {GpuGeneration::kHopper, GpuGeneration::kBlackwell}},
};

}  // namespace tpsim::attention::backends
