// The formats that a model's quantisation gives its weights.
#pragma once

#include <vector>

#include "rank/model/layers.h"
#include "rank/model/model_config.h"

namespace tpsim::rank {

// `weights` with their formats. An entry of which some layers stay 16 bit becomes two, the quantised first.
std::vector<WeightSpec> with_formats(const ModelConfig& model, std::vector<WeightSpec> weights);

}  // namespace tpsim::rank
