// SGLang's choice on SM 10: cuDNN's kernel, and FlashAttention's for calls that suit it better.
//
// Source: SGLang 0.5.23 backends/sdpa.py (DynamicCudnnSDPAImpl._use_cudnn_sdpa, _prefers_fa4_on_sm103).
#include <algorithm>

#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
namespace {

class DynamicPrice : public DiffusionPrice {
 public:
  DynamicPrice(const proto::HardwareProfile& profile, const DiffusionParameters&)
      : sm103_(is_sm103(profile)), cudnn_(profile, kCudnnKernel), flash_(profile, kFlashKernel) {}
  KernelCost layer(const DiffusionCall& call) const override { return kernel(call).all(call); }
  bool measured() const override { return cudnn_.measured(); }

 private:
  const DenseKernel& kernel(const DiffusionCall& call) const {
    const bool same = call.queries == call.keys;
    // Elsewhere cuDNN is taken for batches of small images alone.
    if (cudnn_.generation() != GpuGeneration::kBlackwell)
      return same && call.head_dim == 64 && call.queries == 1024 && call.batch >= 4 ? cudnn_ : flash_;
    if (sm103_ && same && call.head_dim == 128 && call.queries >= kSm103Tokens) return flash_;
    // With fewer tokens on one side than a tile has, cuDNN falls back to a kernel for SM 8.
    return std::min(call.queries, call.keys) >= kTile || std::max(call.queries, call.keys) < kTile ? cudnn_
                                                                                                   : flash_;
  }

  static constexpr double kTile = 128, kSm103Tokens = 16384;

  bool sm103_;
  DenseKernel cudnn_, flash_;
};

}  // namespace

extern const DiffusionBackend dynamic_cudnn_sdpa;
const DiffusionBackend dynamic_cudnn_sdpa = {
    .name = "dynamic_cudnn_sdpa",
    .enum_name = "DYNAMIC_CUDNN_SDPA",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = kCudaGenerations,
    .default_for = DiffusionDefault::kSm10,
    .documented = false,
    .create = create_price<DynamicPrice>,
    .note = "cuDNN's kernel, fa's for calls that it cannot serve; SGLang's choice on SM 10",
};

}  // namespace tpsim::attention::diffusion
