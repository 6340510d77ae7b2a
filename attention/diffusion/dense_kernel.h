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
  // The class of a prefill whose efficiencies price it: the first that the profile has, else the defaults of
  // the first.
  std::span<const std::string_view> classes{};
  std::uint32_t tile_m = 128, tile_n = 128;
  double rate = 1;            // factor on `compute`, the share of the dense rate
  double share = 0;           // of the dense rate, instead of the class's `compute`; 0: that
  double fixed_seconds = -1;  // instead of the class's; < 0: that
  bool corrected = true;      // the class's corrections hold for it
  bool measured = false;      // whole layers with it were measured on such a device (H200)
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

 private:
  // Seconds beyond `seconds` that the board's power limit adds.
  double throttled(double seconds, const DiffusionCall& call) const;

  GpuGeneration generation_;
  const KernelOn* on_;
  bool measured_ = false;
  PlanCoefficients coefficients_;
  Corrections corrections_;
  PlanCost cost_;
  double multiprocessors_;
  double bandwidth_;
  double sustained_flops_ = 0;  // 0: not known
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
