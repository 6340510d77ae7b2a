#include "rank/cost/grouped_experts.h"

#include <algorithm>
#include <array>

namespace tpsim::rank {
namespace {

struct GroupedClass {
  std::string_view name;
  // Rows that each expert has to do more than it has: half a tile of 128 where they follow each other; a
  // buffer of its own of at least so many where rows are masked (the same on an H200 and a B200); half of
  // 16, MegaMoE's least.
  double padding;
  // Bytes of an element of each token that comes before any product: rounded, or copied to its experts' rows.
  double token_bytes;
};
constexpr std::array<GroupedClass, 3> kGroupedClasses = {{
    {"moe.deepep.normal", 64, 3},
    {"moe.deepep.low_latency", 168, 0},
    {"moe.megamoe", 8, 0},
}};

const GroupedClass& row_of(GroupedKernel kernel) { return kGroupedClasses[static_cast<std::size_t>(kernel)]; }

}  // namespace

std::string_view grouped_class(GroupedKernel kernel) { return row_of(kernel).name; }

std::optional<GroupedExperts> GroupedExperts::of(const proto::HardwareProfile& profile,
                                                 GroupedKernel kernel) {
  if (find_efficiency(profile, grouped_class(kernel)) == nullptr) return std::nullopt;
  GroupedExperts experts;
  experts.kernel_ = kernel;
  experts.coefficients_ = coefficients_of(profile, grouped_class(kernel), OperatorCoefficients{});
  experts.flops_ = profile.dense_flops_fp8();
  experts.bandwidth_ = profile.memory_bandwidth();
  return experts;
}

attention::KernelCost GroupedExperts::cost(const GroupedWork& work, const WeightFormat& weight) const {
  const GroupedClass& row = row_of(kernel_);
  const OperatorCoefficients& c = coefficients_;
  const auto hidden = static_cast<double>(work.hidden);
  const double of_row = 6 * hidden * static_cast<double>(work.width);
  const double weights = static_cast<double>(weight.bytes(3 * work.width, work.hidden)) * work.hit;
  const double memory = weights / (bandwidth_ * c.memory);
  const double arithmetic = (work.rows + row.padding * work.hit) * of_row / (flops_ * c.compute);
  const double rows = work.rows * hidden * c.rows;
  const double tokens = work.tokens * hidden * row.token_bytes;
  attention::KernelCost cost;
  cost.seconds = c.fixed_seconds + std::max(memory, arithmetic) + c.overlap * std::min(memory, arithmetic) +
                 rows / bandwidth_ + tokens / (bandwidth_ * c.quantize);
  cost.flops = work.rows * of_row;
  cost.bytes = weights + rows + tokens;
  cost.launches = kernel_ == GroupedKernel::kMegaMoe ? 1 : 7;
  return cost;
}

}  // namespace tpsim::rank
