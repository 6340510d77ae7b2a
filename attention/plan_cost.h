// The cost of a plan on a GPU.
//
// Decode: thread blocks stream their part of the KV cache. The kernel takes as long as the device needs for
// all bytes, or as the longest block needs alone, or as the arithmetic takes, whichever is most, plus a part
// of the others that does not overlap, a fixed time, and a time per wave of blocks over the multiprocessors.
//
// Extend: each tile multiplies its query rows with the KV range it sees. The multiprocessors share the tiles;
// the last ones to finish cost a part of the longest tile.
//
// What the class's corrections (proto/correction_surface.h) say multiplies the whole of decode() and
// extend(), which then stay at or above what the datasheet's peaks leave for the least work.
//
// The coefficients (proto/coefficients.h) are fitted to measured kernels by
// tests/calibration/fit_attention.cc and come in with the hardware profile, class "attention.BACKEND.extend"
// and "attention.BACKEND.decode".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "attention/backend.h"
#include "attention/plan.h"
#include "proto/coefficients.h"
#include "proto/correction_surface.h"
#include "proto/hardware.pb.h"

namespace tpsim::attention {

// `count` sequences of `length` tokens.
struct SequenceGroup {
  std::uint32_t length = 0;
  std::uint32_t count = 0;
  friend bool operator==(const SequenceGroup&, const SequenceGroup&) = default;
};

// Where the KV cache is when the kernel starts. Kernel benchmarks call one layer again and again on the same
// KV, which stays in L2 if it fits; in serving, other layers have pushed it out.
enum class Residency : std::uint8_t { kCold, kHot };

class PlanCost {
 public:
  PlanCost(const proto::HardwareProfile& profile, const PlanCoefficients& coefficients,
           Residency residency = Residency::kCold, Corrections corrections = {});
  // Coefficients and corrections of a class of the profile; without it the defaults and none.
  PlanCost(const proto::HardwareProfile& profile, std::string_view operator_class,
           Residency residency = Residency::kCold);

  const PlanCoefficients& coefficients() const { return c_; }
  KernelCost decode(const DecodePlan& plan, const LayerShape& stored) const;
  KernelCost extend(const ExtendPlan& plan, const LayerShape& stored) const;
  // `q_len` query tokens against all of `kv_len` tokens, without a mask, in one kernel with the tiles of
  // `plan` (whose items are not read).
  KernelCost extend_all(const ExtendPlan& plan, std::uint32_t q_len, std::uint32_t kv_len,
                        const LayerShape& layer) const;
  // Sequences that attend to themselves only, without a mask, in one kernel with the tiles of `plan` (whose
  // items are not read): vision encoders. A tile of a sequence walks all of it.
  KernelCost encode(const ExtendPlan& plan, std::span<const SequenceGroup> sequences,
                    const LayerShape& layer) const;
  // What the corrections of decode() and extend() see. REQUIRES: the plan has items.
  PlanFeatures features(const DecodePlan& plan, const LayerShape& stored) const;
  PlanFeatures features(const ExtendPlan& plan, const LayerShape& stored) const;
  // A copy through an index (a gather) that moves `bytes`, reads and writes together.
  KernelCost gather(double bytes, const LayerShape& layer) const;

 private:
  double special_seconds(const LayerShape& layer) const;
  // New keys and values to the cache, and their casts where it is fp8.
  double write_seconds(double tokens, const LayerShape& layer) const;

  // Thread blocks of a multiprocessor and KV tokens of the longest one, as features() says.
  struct Occupancy {
    double blocks = 0;
    double part = 0;
  };
  KernelCost decode_physics(const DecodePlan& plan, const DecodeTotals& totals, const LayerShape& stored,
                            Occupancy& occupancy) const;
  KernelCost extend_physics(const ExtendPlan& plan, const LayerShape& stored, Occupancy& occupancy) const;
  // `batch`: an ExtendPlan, or the totals of a DecodePlan.
  template <typename Batch>
  PlanFeatures features_of(const Batch& batch, const LayerShape& layer, const Occupancy& occupancy) const;
  // `cost`, its time corrected. REQUIRES: the batch has requests.
  template <typename Batch>
  KernelCost corrected(KernelCost cost, const Batch& batch, const LayerShape& stored,
                       const Occupancy& occupancy) const;

  struct Load;  // of one kernel's thread blocks
  KernelCost mla_chunks(const ExtendPlan& plan, const LayerShape& layer, double q_tokens) const;
  double flops_per_second(const LayerShape& layer) const;
  double block_compute(const LayerShape& layer) const;
  double memory_seconds(double bytes, const LayerShape& layer) const;
  double tiles_seconds(const Load& load, const LayerShape& layer, double rate) const;
  KernelCost kernel(const Load& load, const LayerShape& layer, double rate) const;

  PlanCoefficients c_;
  Corrections corrections_;
  double bf16_flops_;
  double fp8_flops_;
  double bandwidth_;
  double multiprocessors_;
  double l2_bytes_;
  double hot_bytes_;  // L2 that holds what was read before; 0 = cold
};

}  // namespace tpsim::attention
