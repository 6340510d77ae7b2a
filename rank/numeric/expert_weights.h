// Gated MLPs and experts out of the tensors of a checkpoint: one tensor per expert and projection, or all
// experts fused in one, as Transformers 5 and gpt-oss keep them.
#pragma once

#include <cstdint>
#include <string>

#include "rank/model/model_config.h"
#include "rank/model/shard.h"
#include "rank/numeric/rank_weights.h"
#include "rank/numeric/weight_reader.h"

namespace tpsim::rank {

// Part `part` of `parts` of the MLP under `at` ("…mlp."), `width` wide in all.
MlpWeights load_mlp(const WeightReader& reader, const std::string& at, std::uint64_t hidden,
                    std::uint64_t width, std::uint32_t part, std::uint32_t parts, bool bias);

// The experts of layer `at` ("…layers.3.").
MoeWeights load_moe(const ModelConfig& model, const Shard& shard, const WeightReader& reader,
                    const std::string& at);

}  // namespace tpsim::rank
