// Where SGLang's load balancer puts experts: eplb/eplb_algorithms/deepseek.py of 0.5.23 (DeepSeek's EPLB) on
// one node, where its hierarchical form comes to the same.
#pragma once

#include <cstdint>
#include <vector>

namespace tpsim::rank {

// Which logical expert each physical one is, rank by rank: as many more of the most loaded ones as
// `redundant` says, and every rank as many as any other. `loads`: of the logical experts of one layer,
// before. REQUIRES: ep_size divides their number with the redundant ones.
std::vector<std::uint32_t> balanced_placement(const std::vector<double>& loads, std::uint32_t redundant,
                                              std::uint32_t ep_size);
// The placement that nobody balanced: one after the other, and from the first again.
std::vector<std::uint32_t> trivial_placement(std::uint32_t experts, std::uint32_t redundant);

}  // namespace tpsim::rank
