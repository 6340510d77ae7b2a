// What the experts of one layer have to do.
#pragma once

#include <cstdint>

namespace tpsim::rank {

// The routed experts of one layer, gate-up and down projection, on one rank.
struct RoutedExperts {
  double tokens = 0;  // of all ranks that share the experts
  std::uint64_t hidden = 0;
  std::uint64_t width = 0;    // of one expert on this rank
  std::uint32_t experts = 0;  // of this rank
  std::uint32_t top_k = 0;
  std::uint32_t ep_size = 1;  // ranks with other experts: this one gets 1 / ep_size of the rows
  // Rows of this rank and experts that have any, where choices are not even (rank/llm/expert_load.h); 0:
  // they are.
  double rows = 0;
  double hit = 0;
  bool gated = true;           // up is two projections, of which one is a gate
  bool only_own_rows = false;  // an all-to-all brings this rank its rows, and no others
  // The rows go round the experts in turn, as in measurements, and are not each token's own choice.
  bool in_turn = false;
  // All tokens choose the same few experts, as with dummy weights: `experts` are these. No measured kernel
  // was so, and corrections of those that were, with few rows an expert, are not for it.
  bool same_choice = false;
  std::uint32_t loaded_experts = 0;  // of this rank, where `experts` are those in use; 0: `experts`
};

// Rows that a rank's experts work on.
struct ExpertWork {
  double rows = 0;      // of this rank
  double all_rows = 0;  // that the passes between and behind the products go over
  double hit = 0;       // experts of this rank with rows
};

ExpertWork work_of(const RoutedExperts& experts);

// base^exponent by multiplication alone: processes compare prices bit for bit, and the last bits of a
// library's exponential differ between processors.
inline double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace tpsim::rank
