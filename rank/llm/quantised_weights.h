// The formats that a model's quantisation gives its weights.
#pragma once

#include <string>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/llm/weight_spec.h"

namespace tpsim::rank {

// `weights` with their formats. An entry of which some layers stay 16 bit becomes two, the quantised first.
std::vector<WeightSpec> with_formats(const ModelConfig& model, std::vector<WeightSpec> weights);

// `weights`: a rank's of `model`. Throws UserError where its part of one is not made of whole blocks of
// scales, which SGLang refuses. (Numeric execution computes with what the blocks stand for, and cuts that
// anywhere.)
void check_blocks(const std::vector<WeightSpec>& weights, const std::string& model);

}  // namespace tpsim::rank
