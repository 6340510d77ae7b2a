#include "attention/diffusion/dense_kernel.h"

namespace tpsim::attention::diffusion {
namespace {

// fav3_sage: queries and keys as int8, values as fp8, which CDNA 3 multiplies twice as fast as 16 bit. Half
// of that gain is left beside the softmax and the quantisation, as SageAttention 2 keeps on Ada (2.58 of 4
// over FlashAttention 2; arXiv 2411.10958).
constexpr double kRate = 1.5;

class AiterSagePrice : public DiffusionPrice {
 public:
  AiterSagePrice(const proto::HardwareProfile& profile, const DiffusionParameters&)
      : kernel_(profile, kAiterKernel) {}
  KernelCost layer(const DiffusionCall& call) const override {
    KernelCost cost = kernel_.part(call, call.queries, call.keys, kRate);
    // Each of q, k and v is read in 16 bit and written in 8.
    cost += kernel_.traffic(1.5 * (token_bytes(call, call.queries) + 2 * token_bytes(call, call.keys)), 3);
    return cost;
  }
  bool measured() const override { return false; }

 private:
  DenseKernel kernel_;
};

}  // namespace

extern const DiffusionBackend aiter_sage;
const DiffusionBackend aiter_sage = {
    .name = "aiter_sage",
    .enum_name = "AITER_SAGE",
    .package = "aiter",
    .module = "aiter",
    .platforms = {DiffusionPlatform::kRocm},
    .generations = {GpuGeneration::kRocm},
    .create = create_price<AiterSagePrice>,
    .note = "AITER's SageAttention, in Triton",
};

}  // namespace tpsim::attention::diffusion
