#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
extern const DiffusionBackend aiter;
const DiffusionBackend aiter = {
    .name = "aiter",
    .enum_name = "AITER",
    .package = "aiter",
    .module = "aiter",
    .platforms = {DiffusionPlatform::kRocm},
    .generations = {GpuGeneration::kRocm},
    .half_only = false,
    .default_for = DiffusionDefault::kRocm,
    .fails_elsewhere = true,
    .create = create_price<DensePrice<kAiterKernel>>,
    .note = "what SGLang takes on ROCm where none is named",
};

}  // namespace tpsim::attention::diffusion
