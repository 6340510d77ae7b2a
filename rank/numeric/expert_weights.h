// Gated MLPs and experts out of the tensors of a checkpoint: one tensor per expert and projection, or all
// experts fused in one, as Transformers 5 and gpt-oss keep them.
#pragma once

#include <string>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/layers.h"
#include "rank/numeric/layer_weights.h"
#include "rank/numeric/weight_reader.h"

namespace tpsim::rank {

// The gated MLP of layer `at` ("…layers.3.") with these weights. The bias of the sum over the ranks is added
// by one of them.
MlpWeights load_mlp(const WeightReader& reader, const std::string& at, const WeightSpec& gate_up,
                    const WeightSpec& down, bool adds_down_bias);

// The router, experts and shared experts of layer `at`. `weights`: weight_list() of the rank.
MoeWeights load_moe(const ModelConfig& model, const Shard& shard, const std::vector<WeightSpec>& weights,
                    const WeightReader& reader, const std::string& at);

}  // namespace tpsim::rank
