// Attention kernels that meet every query with every key, and parts of them for those that leave keys out:
// the price of one call, by the formula and the fitted efficiencies of causal prefill
// (attention/plan_cost.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "attention/diffusion/backend.h"
#include "attention/diffusion/call.h"
#include "attention/gpu_generation.h"
#include "attention/plan_cost.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// How a kernel computes on devices of some generations.
struct KernelOn {
  GpuGenerations generations{};
  // The class of a prefill whose efficiencies and corrections price it: the first that the profile has, else
  // the defaults of the first. Empty: `own` does.
  std::span<const std::string_view> classes{};
  const PlanCoefficients* own = nullptr;  // its `compute` is set from sm_flops
  double sm_flops = 0;                    // own: what it reaches on one multiprocessor, a second …
  double most = 1;                        // … but no more than this share of the dense rate
  // Own: of the dense rate, what it keeps up under the board's power limit where one pass after another is
  // full of it; 0: its rate.
  double sustained = 0;
  // Of a class: times its rate; of SM 10.3 where it differs.
  double rate = 1, rate_sm103 = 0;
  // Of a class: the dense rate of a multiprocessor that it was measured on. Cards of the same chips whose
  // tensor cores add up in fp32 at half their rate wait for those and for little else. 0: none are.
  double measured_sm_flops = 0;
  // Times its rate, with heads up to 64 and up to 96 wide: encoder_attention_perf (../shared/data/kernels).
  double rate_64 = 1, rate_96 = 1;
  std::uint32_t tile_n = 128;
};

struct DenseKernelDescription {
  std::string_view name{};
  std::span<const KernelOn> on{};  // the first that has the device; one has it, the last has all
};
extern const DenseKernelDescription kFlashKernel;   // FlashAttention 3 and 4, and 2 before Hopper
extern const DenseKernelDescription kTorchKernel;   // PyTorch's, without cuDNN: FlashAttention 2
extern const DenseKernelDescription kCudnnKernel;   // cuDNN's through PyTorch
extern const DenseKernelDescription kTritonKernel;  // a FlashAttention written in Triton
extern const DenseKernelDescription kAiterKernel;   // AMD's

// B300 and GB300, whose exponentials are twice as fast as those of other GPUs of SM 10.
bool is_sm103(const proto::HardwareProfile& profile);

class DenseKernel {
 public:
  DenseKernel(const proto::HardwareProfile& profile, const DenseKernelDescription& description);

  // Every query meets every key.
  KernelCost all(const DiffusionCall& call) const { return part(call, call.queries, call.keys); }
  // `queries` meet `keys` each, at `rate` x the kernel's own rate.
  KernelCost part(const DiffusionCall& call, double queries, double keys, double rate = 1) const;
  // Kernels between it that read and write so many bytes.
  KernelCost traffic(double bytes, std::uint32_t launches = 1) const;
  // Whether the profile has a class of it.
  bool measured() const { return measured_; }
  GpuGeneration generation() const { return generation_; }
  // Whether tensor cores are far slower than those that its rate was measured on, and all else hides behind
  // them.
  bool waits_for_tensor_cores() const;

 private:
  // `cost` under the board's power limit, as one of call.layers such calls of a pass.
  double throttled(const KernelCost& cost, const DiffusionCall& call) const;

  GpuGeneration generation_;
  const KernelOn* on_;
  bool measured_ = false;
  Corrections corrections_;
  PlanCost cost_;
  double multiprocessors_;
  double bandwidth_;
  double sustained_flops_;  // 0: no limit
  double dense_flops_;
  double rate_;
  double half_rate_ = 1;  // how much faster a multiprocessor is than its share of the dense rate says
};

// A backend whose layers are one such kernel.
template <const DenseKernelDescription& kDescription>
class DensePrice : public DiffusionPrice {
 public:
  DensePrice(const proto::HardwareProfile& profile, const DiffusionParameters&)
      : kernel_(profile, kDescription) {}
  KernelCost layer(const DiffusionCall& call) const override { return kernel_.all(call); }
  bool measured() const override { return kernel_.measured(); }

 private:
  DenseKernel kernel_;
};

}  // namespace tpsim::attention
