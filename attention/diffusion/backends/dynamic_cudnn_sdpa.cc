#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
extern const DiffusionBackend dynamic_cudnn_sdpa;
const DiffusionBackend dynamic_cudnn_sdpa = {
    .name = "dynamic_cudnn_sdpa",
    .enum_name = "DYNAMIC_CUDNN_SDPA",

    .platforms = {DiffusionPlatform::kCuda},
    .generations = kCudaGenerations,
    .half_only = true,
    .documented = false,
    .create = create_price<DensePrice<kCudnnKernel>>,
    .note = "cuDNN's kernel, fa's for calls that it cannot serve",
};

}  // namespace tpsim::attention::diffusion
