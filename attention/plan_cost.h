// The cost of a plan on a GPU.
//
// Decode: thread blocks stream their part of the KV cache. The kernel takes as long as the device needs for
// all bytes, or as the longest block needs alone, or as the arithmetic takes, whichever is most, plus a part
// of the others that does not overlap, a fixed time, and a time per wave of blocks over the multiprocessors.
//
// Extend: each tile multiplies its query rows with the KV range it sees. The multiprocessors share the tiles;
// the last ones to finish cost a part of the longest tile.
//
// The coefficients are fitted to measured kernels by tests/calibration/fit_attention.cc and come in with the
// hardware profile, class "attention.BACKEND.extend" and "attention.BACKEND.decode".
#pragma once

#include <cstdint>
#include <string>

#include "attention/backend.h"
#include "attention/plan.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// Coefficients of one operator class. Names of OperatorEfficiency.parameters in the comments.
struct PlanCoefficients {
  double compute = 0.6;  // of the dense rate
  double memory = 0.8;   // of the memory bandwidth
  double fixed_seconds = 4e-6;
  double block_seconds = 2e-6;  // "block_seconds": start and end of one thread block
  double block_memory = 2.0;    // "block_memory": one block streams this x bandwidth / multiprocessors
  double overlap = 0.3;         // "overlap": share of the lesser costs that is not hidden
  double tail = 0.5;            // "tail": share of the longest tile added at the end (extend)
  double merge_seconds = 3e-6;  // "merge_seconds": fixed cost of adding up parts (decode)
  double head_dim_64 = 1;       // "head_dim_64" …: factor on `compute` for head sizes other than 128
  double head_dim_192 = 1;
  double head_dim_256 = 1;
  double fp8_kv = 1;       // "fp8_kv": factor on `memory` where the KV cache is fp8
  double fp8_compute = 1;  // "fp8_compute": factor on `compute` where q is fp8 too
  double window = 1;       // "window": factor on the time of sliding-window layers
  double l2_memory = 1;    // "l2_memory": factor on `memory` while the KV fits the L2 cache (hot only)
  bool calibrated = false;
};

PlanCoefficients coefficients_of(const proto::HardwareProfile& profile, const std::string& operator_class);
// The inverse, for the fit.
void write_coefficients(const PlanCoefficients& coefficients, proto::OperatorEfficiency& out);

// Where the KV cache is when the kernel starts. Kernel benchmarks call one layer again and again on the same
// KV, which stays in L2 if it fits; in serving, other layers have pushed it out.
enum class Residency : std::uint8_t { kCold, kHot };

class PlanCost {
 public:
  PlanCost(const proto::HardwareProfile& profile, const PlanCoefficients& coefficients,
           Residency residency = Residency::kCold);

  KernelCost decode(const DecodePlan& plan, const LayerShape& layer) const;
  KernelCost extend(const ExtendPlan& plan, const LayerShape& layer) const;

 private:
  double flops_per_second(const LayerShape& layer) const;
  double bytes_per_second(const LayerShape& layer, double bytes) const;

  PlanCoefficients c_;
  double bf16_flops_;
  double fp8_flops_;
  double bandwidth_;
  double multiprocessors_;
  double hot_bytes_;  // up to this many bytes come from L2
};

}  // namespace tpsim::attention
