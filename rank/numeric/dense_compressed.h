// DeepSeek V4 the plain way: hyper-connections and attention over compressed tokens, over whole sequences.
#pragma once

#include <functional>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/numeric/dense_mlp.h"
#include "rank/numeric/dense_parts.h"
#include "rank/numeric/weight_reader.h"

namespace tpsim::rank::dense {

using Streams = std::vector<Rows>;  // [streams][tokens]

// A sublayer reads a mixture of the streams and says something into each, while they are mixed.
void through(const ModelConfig& model, const StreamWeights& weights, Streams& streams,
             const std::function<Rows(const Rows& x)>& sublayer);
Rows collapse_for_head(const ModelConfig& model, const StreamWeights& weights, const Streams& streams);

// x: normed. `rope`: of the layer.
Rows compressed_attention(const ModelConfig& model, const LayerConfig& layer, const LayerWeights& weights,
                          const PlainRope& rope, const Rows& x);

}  // namespace tpsim::rank::dense
