// What the dense reference multiplies with, and its MLPs: all weights whole, arithmetic in fp64.
#pragma once

#include <vector>

#include "rank/config/model_config.h"
#include "rank/numeric/rank_weights.h"

namespace tpsim::rank::dense {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// x W^T (+ b).
Rows times(const PackedMatrix& w, const Rows& x, const std::vector<float>& bias = {});

Rows mlp(const ModelConfig& model, const MlpWeights& weights, const Rows& x);
// Router, experts and shared experts.
Rows experts(const ModelConfig& model, const MoeWeights& weights, const Rows& x);

}  // namespace tpsim::rank::dense
