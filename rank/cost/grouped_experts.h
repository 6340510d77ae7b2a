// Experts behind an all-to-all: DeepGEMM's grouped products of SGLang's DeepEPMoE, in its two forms, and
// MegaMoE, one kernel that also brings tokens to their experts and back.
//
// Weights of the experts that are hit, against their rows in whole tiles; then passes over the rows, and over
// the tokens that came. Classes "moe.deepep.normal", "moe.deepep.low_latency" and "moe.megamoe"
// (wideep_context_moe_perf, wideep_generation_moe_perf, dsv4_megamoe_module_perf).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attention/backend.h"
#include "proto/coefficients.h"
#include "proto/hardware.pb.h"
#include "rank/config/weight_format.h"

namespace tpsim::rank {

enum class GroupedKernel : std::uint8_t { kNormal, kLowLatency, kMegaMoe };
std::string_view grouped_class(GroupedKernel kernel);

// One layer on the rank that has most.
struct GroupedWork {
  std::uint64_t hidden = 0, width = 0;
  double rows = 0;    // of its experts
  double hit = 0;     // experts that have any
  double tokens = 0;  // that came
};

class GroupedExperts {
 public:
  // nullopt: the profile knows nothing of the kernel.
  static std::optional<GroupedExperts> of(const proto::HardwareProfile& profile, GroupedKernel kernel);

  attention::KernelCost cost(const GroupedWork& work, const WeightFormat& weight) const;

 private:
  GroupedKernel kernel_ = GroupedKernel::kNormal;
  OperatorCoefficients coefficients_;
  double flops_ = 0, bandwidth_ = 0;  // of fp8, in which all three multiply
};

}  // namespace tpsim::rank
