// Wave kernels (ROCm); its row only.
#include "attention/backend_description.h"

namespace tpsim::attention::backends {

extern const BackendDescription wave = {
    .row = {.name = "wave", .title = "Wave (ROCm)", .generations = {GpuGeneration::kRocm}, .has_mha = true},
};

}  // namespace tpsim::attention::backends
