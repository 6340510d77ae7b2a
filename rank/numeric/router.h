// Which experts a token goes to, and with what weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/config/model_config.h"

namespace tpsim::rank {

struct Routed {
  std::uint32_t expert = 0;
  float weight = 0;
};

// `scores`: router logits [num_experts], overwritten. `correction`: the bias that chooses but does not weigh
// (ExpertScoring::kSigmoid), or empty. Fills `out` with top_k entries, by ascending expert. Ties: the lower
// expert.
//
// Sources: DeepSeek-V2 and V3 technical reports (group-limited routing), Transformers' modeling of each.
void route(const MoeConfig& config, std::span<float> scores, std::span<const float> correction,
           std::vector<Routed>& out);

}  // namespace tpsim::rank
