// What the dense reference multiplies with, and its MLPs: all weights whole, arithmetic in fp64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/numeric/weight_reader.h"

namespace tpsim::rank::dense {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// x W^T (+ b).
Rows times(const PackedMatrix& w, const Rows& x, const std::vector<float>& bias = {});

Rows mlp(const ModelConfig& model, const MlpWeights& weights, const Rows& x);
// Router and experts. `routed_by`: what the router reads. `ids`: the tokens, by which a table may choose.
Rows routed_experts(const ModelConfig& model, const MoeWeights& weights, const Rows& routed_by, const Rows& x,
                    std::span<const std::uint32_t> ids = {});
// The same with shared experts.
Rows experts(const ModelConfig& model, const MoeWeights& weights, const Rows& x,
             std::span<const std::uint32_t> ids = {});

}  // namespace tpsim::rank::dense
