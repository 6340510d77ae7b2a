// Sparse linear attention (sla_plan.h), its exact part by SageAttention 2's kernels: int8 and fp8.
#include <array>

#include "attention/diffusion/sla_plan.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr std::array<std::uint32_t, 2> kHeadSizes = {64, 128};

// Times FlashAttention 2, as sage_attn.cc's second release; Hopper's kernel has small tiles of queries (64 x
// 128).
double rate(GpuGeneration generation) {
  switch (generation) {
    case GpuGeneration::kAda:
    case GpuGeneration::kBlackwellSm120:
      return 3;
    case GpuGeneration::kHopper:
      return 2.6;
    default:
      return 1.33;
  }
}

class SageSlaPrice : public DiffusionPrice {
 public:
  SageSlaPrice(const proto::HardwareProfile& profile, const DiffusionParameters& parameters)
      : plan_{.topk = real_parameter(parameters, "sla_topk")}, kernel_(profile, kTorchKernel) {
    if (kernel_.generation() == GpuGeneration::kHopper) {
      plan_.block_q = 64;
      plan_.block_k = 128;
    }
  }
  KernelCost layer(const DiffusionCall& call) const override {
    KernelCost cost = kernel_.part(call, call.queries, plan_.kept(call), rate(kernel_.generation()));
    cost += plan_.beside(call, kernel_);
    // q, k and v in 16 bit are read and written in 8; v is transposed before.
    cost += kernel_.traffic(1.5 * token_bytes(call, call.queries) + 5 * token_bytes(call, call.keys), 6);
    return cost;
  }
  double share(const DiffusionCall& call) const override { return plan_.kept(call) / call.keys; }
  bool measured() const override { return false; }

 private:
  SlaPlan plan_;
  DenseKernel kernel_;
};

}  // namespace

extern const DiffusionBackend sage_sla_attn;
const DiffusionBackend sage_sla_attn = {
    .name = "sage_sla_attn",
    .enum_name = "SAGE_SLA_ATTN",
    .package = "spargeattn",
    .module = "SpargeAttn",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = {GpuGeneration::kAmpere, GpuGeneration::kAda, GpuGeneration::kHopper,
                    GpuGeneration::kBlackwell, GpuGeneration::kBlackwellSm120},
    .head_sizes = {.listed = kHeadSizes},
    .sparse = true,
    .if_missing = IfMissing::kRefusedLate,
    .parameters = {&kSlaTopk, 1},
    .create = create_price<SageSlaPrice>,
    .note = "CUDA only",
};

}  // namespace tpsim::attention::diffusion
