#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr std::string_view kAliases[] = {"cudnn_sdpa"};

}  // namespace

extern const DiffusionBackend torch_cudnn_sdpa;
const DiffusionBackend torch_cudnn_sdpa = {
    .name = "torch_cudnn_sdpa",
    .enum_name = "TORCH_CUDNN_SDPA",
    .aliases = kAliases,
    .platforms = {DiffusionPlatform::kCuda},
    .generations = kCudaGenerations,
    .half_only = false,
    .documented = false,
    .create = create_price<DensePrice<kCudnnKernel>>,
    .note = "PyTorch's scaled_dot_product_attention, cuDNN on",
};

}  // namespace tpsim::attention::diffusion
