// The formats that a model's quantisation gives its weights.
#pragma once

#include <vector>

#include "rank/model/layers.h"
#include "rank/model/model_config.h"
#include "rank/model/shard.h"

namespace tpsim::rank {

// `weights` with their formats. An entry of which some layers stay 16 bit becomes two, the quantised first.
std::vector<WeightSpec> with_formats(const ModelConfig& model, std::vector<WeightSpec> weights);

// Throws UserError where a rank's part of a weight is not made of whole blocks of scales, which SGLang
// refuses. (Numeric execution computes with what the blocks stand for, and cuts that anywhere.)
void check_blocks(const ModelConfig& model, const Shard& shard);

}  // namespace tpsim::rank
