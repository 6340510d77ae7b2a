#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr std::string_view kAliases[] = {"fa3", "fa4"};
constexpr std::uint32_t kHeadSizes[] = {32, 64, 96, 128, 160, 192, 224, 256};

}  // namespace

extern const DiffusionBackend fa;
const DiffusionBackend fa = {
    .name = "fa",
    .enum_name = "FA",
    .aliases = kAliases,
    .package = "fa",
    .module = "flash_attn",
    .platforms = {DiffusionPlatform::kCuda, DiffusionPlatform::kRocm, DiffusionPlatform::kXpu,
                  DiffusionPlatform::kMusa, DiffusionPlatform::kNpu},
    .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                    GpuGeneration::kBlackwell, GpuGeneration::kXpu, GpuGeneration::kNpu},
    .head_sizes = {.listed = kHeadSizes},
    .default_for = DiffusionDefault::kFlash,
    .ring = true,
    .create = create_price<DensePrice<kFlashKernel>>,
    .note = "FlashAttention 3 (Hopper and before) and 4 (SM 10); XPU and NPU have kernels of their own",
};

}  // namespace tpsim::attention::diffusion
