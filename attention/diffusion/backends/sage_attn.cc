// SageAttention: queries and keys in int8 with block scales, keys less their mean.
//
// Sources: arXiv 2410.02367 (1: int8 x int8, values in 16 bit; Triton), 2411.10958 (2: values in fp8),
// 2505.21136 (2++); SGLang 0.5.23 backends/sage_attn.py.
#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
namespace {

// Of release 1, Triton: times the rate of PyTorch's kernel on Hopper
// (../shared/data/diffusion/sglang_dit.json, three rows of SageAttention 1.0.6 on an H200), FlashAttention
// 2's elsewhere (2.1 on Ada: its abstract). Of release 2, times FlashAttention 2: 3 on Ada and SM 12 (its
// abstract). On Ampere products of int8 are twice as fast and those with values stay, so 1 / (1/4 + 1/2). On
// Hopper it is as fast as FlashAttention 3 in fp8 (its abstract), 1.5 x FlashAttention 3 in 16 bit (1.2
// PFLOP/s against 740 to 840, arXiv 2407.08608).
struct Release {
  GpuGenerations generations{};
  const DenseKernelDescription* kernel = nullptr;
  double first = 1, second = 1;
};
constexpr Release kReleases[] = {
    {{GpuGeneration::kHopper}, &kTorchKernel, 1.19, 0},
    {{GpuGeneration::kAda, GpuGeneration::kBlackwellSm120}, &kTorchKernel, 2.1, 3.0},
    {kAllGenerations, &kTorchKernel, 1.33, 1.33},
};
constexpr double kHopperSecond = 1.5;
// Where products are all that counts (H20): those of 8 bit are twice as fast.
constexpr double kSlowSecond = 2;

constexpr std::string_view kReleaseNames[] = {"1", "2"};
constexpr DiffusionParameter kParameters[] = {
    {.name = "release",
     .type = ParameterType::kText,
     .default_value = "1",
     .choices = kReleaseNames,
     .meaning =
         "which sageattention is installed, 1 (Triton) or 2 (CUDA); SGLang looks, it reads no such key"},
};

class SagePrice : public DiffusionPrice {
 public:
  SagePrice(const proto::HardwareProfile& profile, const DiffusionParameters& parameters)
      : second_(text_parameter(parameters, "release") == "2"),
        release_(&release(profile)),
        flash3_(second_ && release_->second == 0),
        kernel_(profile, flash3_ ? kFlashKernel : *release_->kernel) {}

  KernelCost layer(const DiffusionCall& call) const override {
    double rate = second_ ? release_->second : release_->first;
    if (flash3_) rate = kernel_.waits_for_tensor_cores() ? kSlowSecond : kHopperSecond;
    KernelCost cost = kernel_.part(call, call.queries, call.keys, rate);
    // The mean of the keys; q and k are read in 16 bit and written in 8.
    if (!call.kernel_alone)
      cost += kernel_.traffic(1.5 * token_bytes(call, call.queries) + 2.5 * token_bytes(call, call.keys), 3);
    return cost;
  }
  bool measured() const override {
    return !second_ && kernel_.generation() == GpuGeneration::kHopper && kernel_.measured();
  }

 private:
  static const Release& release(const proto::HardwareProfile& profile) {
    const GpuGeneration generation = parse_gpu_generation(profile.architecture()).value();
    const Release* found = std::begin(kReleases);
    while (!found->generations.contains(generation)) ++found;
    return *found;
  }

  bool second_;
  const Release* release_;
  bool flash3_;
  DenseKernel kernel_;
};

}  // namespace

extern const DiffusionBackend sage_attn;
const DiffusionBackend sage_attn = {
    .name = "sage_attn",
    .enum_name = "SAGE_ATTN",
    .package = "sage",
    .module = "sageattention",
    .platforms = {DiffusionPlatform::kCuda, DiffusionPlatform::kMusa},
    .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                    GpuGeneration::kBlackwellSm120},
    .head_sizes = {.min = 1, .max = 128},
    .if_missing = IfMissing::kFlash,
    .refuses_heads = true,
    .ring = true,
    .parameters = kParameters,
    .create = create_price<SagePrice>,
    .note = "fa where sageattention is not installed",
};

}  // namespace tpsim::attention::diffusion
