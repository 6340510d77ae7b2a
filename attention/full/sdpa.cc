// PyTorch's scaled_dot_product_attention. Where a model packs its sequences into one, it attends to the whole
// under a mask of every pair of patches, made on the host and copied for each layer, with which PyTorch takes
// another kernel.
#include <cstdint>

#include "attention/full/full_attention.h"

namespace tpsim::attention::full {
namespace {

constexpr MaskedAttention kMasked = {
    .layer =
        [](double patches, std::uint32_t heads, std::uint32_t head_dim, double peak_flops) {
          // Of the device's peak (about 70 TFLOP/s on an H200, by 9 encoders' times).
          constexpr double kShare = 0.07;
          const double pairs = patches * patches;
          KernelCost cost;
          cost.flops = 4 * pairs * heads * head_dim;
          cost.bytes = pairs * heads;  // every head reads the mask, a byte for a pair
          cost.seconds = cost.flops / (kShare * peak_flops);
          cost.launches = 2;  // the mask's copy
          return cost;
        },
    .host_seconds =
        [](double patches) {
          // A copy of pageable memory to the device: 9 GB/s on the H200's machine.
          constexpr double kCopyRate = 9e9;
          return patches * patches / kCopyRate;
        },
};

}  // namespace

extern const FullAttentionDescription sdpa = {
    .name = "sdpa",
    .backend = "torch_native",
    .devices =
        kCudaGenerations | GpuGenerations{GpuGeneration::kRocm, GpuGeneration::kXpu, GpuGeneration::kCpu},
    // 0.5.23 has a kernel of its own there (amx_attn), which the matrices do not list.
    .default_on = {GpuGeneration::kCpu},
    .packed = &kMasked,
};

}  // namespace tpsim::attention::full
