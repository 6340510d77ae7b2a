// SageAttention 3: both products in fp4 with a scale for every 16 elements (arXiv 2505.11594).
#include <array>

#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr std::array<std::uint32_t, 3> kHeadSizes = {64, 128, 256};

// Times FlashAttention 2's rate (abstract: 1038 TOPS on an RTX 5090, 5 x the fastest FlashAttention there).
// SM 10 has no such FlashAttention; there it is as many times PyTorch's kernel.
constexpr double kRate = 5;

class Sage3Price : public DiffusionPrice {
 public:
  Sage3Price(const proto::HardwareProfile& profile, const DiffusionParameters&)
      : kernel_(profile, kTorchKernel) {}
  KernelCost layer(const DiffusionCall& call) const override {
    KernelCost cost = kernel_.part(call, call.queries, call.keys, kRate);
    // Queries and keys less their means, then all three in 4 bit.
    if (!call.kernel_alone)
      cost += kernel_.traffic(3.25 * token_bytes(call, call.queries) + 4.5 * token_bytes(call, call.keys), 6);
    return cost;
  }
  bool measured() const override { return false; }

 private:
  DenseKernel kernel_;
};

}  // namespace

extern const DiffusionBackend sage_attn_3;
const DiffusionBackend sage_attn_3 = {
    .name = "sage_attn_3",
    .enum_name = "SAGE_ATTN_3",
    .package = "sage3",
    .module = "sageattn3",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = {GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
    .head_sizes = {.listed = kHeadSizes},
    .if_missing = IfMissing::kTorch,
    .create = create_price<Sage3Price>,
    .note = "torch_sdpa where it is not installed",
};

}  // namespace tpsim::attention::diffusion
