#include "rank/cost/routed_experts.h"

#include <algorithm>

namespace tpsim::rank {

ExpertWork work_of(const RoutedExperts& experts) {
  const double chosen_rows = experts.tokens * experts.top_k;
  const double rows = std::max(1.0, experts.rows > 0 ? experts.rows : chosen_rows / experts.ep_size);
  const double all_experts = double(experts.experts) * experts.ep_size;
  // Experts that are hit: each token chooses top_k different ones.
  const double chance =
      1 - power(1 - experts.top_k / all_experts, static_cast<std::uint64_t>(experts.tokens));
  const double even = experts.rows > 0 ? experts.hit : experts.experts * chance;
  const double hit =
      experts.in_turn ? std::min<double>(experts.experts, rows) : std::min<double>(rows, std::max(1.0, even));
  return {rows, experts.only_own_rows ? rows : chosen_rows, hit};
}

}  // namespace tpsim::rank
