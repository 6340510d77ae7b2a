// Sparse linear attention (sla_plan.h), its exact part in Triton.
#include <array>

#include "attention/diffusion/sla_plan.h"

namespace tpsim::attention::diffusion {
namespace {

constexpr std::array<std::uint32_t, 2> kHeadSizes = {64, 128};

class SlaPrice : public DiffusionPrice {
 public:
  SlaPrice(const proto::HardwareProfile& profile, const DiffusionParameters& parameters)
      : plan_{.topk = real_parameter(parameters, "sla_topk")}, kernel_(profile, kTritonKernel) {}
  KernelCost layer(const DiffusionCall& call) const override {
    KernelCost cost = kernel_.part(call, call.queries, plan_.kept(call));
    cost += plan_.beside(call, kernel_);
    return cost;
  }
  double share(const DiffusionCall& call) const override { return plan_.kept(call) / call.keys; }
  bool measured() const override { return false; }

 private:
  SlaPlan plan_;
  DenseKernel kernel_;
};

}  // namespace

extern const DiffusionBackend sla_attn;
const DiffusionBackend sla_attn = {
    .name = "sla_attn",
    .enum_name = "SLA_ATTN",
    .platforms = {DiffusionPlatform::kCuda},
    .generations = kCudaGenerations,
    .head_sizes = {.listed = kHeadSizes},
    .sparse = true,
    .parameters = {&kSlaTopk, 1},
    .create = create_price<SlaPrice>,
    .note = "CUDA only; its kernel is SGLang's own, though the documentation names SpargeAttn",
};

}  // namespace tpsim::attention::diffusion
