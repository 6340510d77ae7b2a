#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
extern const DiffusionBackend torch_sdpa;
const DiffusionBackend torch_sdpa = {
    .name = "torch_sdpa",
    .enum_name = "TORCH_SDPA",

    .platforms = {DiffusionPlatform::kCuda, DiffusionPlatform::kRocm, DiffusionPlatform::kXpu,
                  DiffusionPlatform::kMusa, DiffusionPlatform::kMps, DiffusionPlatform::kNpu},

    .half_only = false,
    .default_for = DiffusionDefault::kTorch,
    .documented = true,
    .create = create_price<DensePrice<kTorchKernel>>,
    .note = "PyTorch's scaled_dot_product_attention, cuDNN off",
};

}  // namespace tpsim::attention::diffusion
