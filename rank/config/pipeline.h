// Pipeline stages: which layers each has, and what else of the model (SGLang 0.5 distributed/utils.py
// get_pp_indices, utils/common.py make_layers, and the constructors in models/*.py).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rank/config/model_config.h"
#include "rank/config/shard.h"

namespace tpsim::rank {

struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Layers of each of `pp_size` stages: even shares, and one more for each of the last stages where they do not
// come out even; or as many as `partition` says, SGLang's environment variable SGLANG_PP_LAYER_PARTITION
// ("" = not set). Throws UserError for more stages than layers, and for a partition of other sums or counts.
std::vector<LayerRange> pipeline_layers(std::uint32_t num_layers, std::uint32_t pp_size,
                                        const std::string& partition);

// Throws UserError where SGLang's code of the model has no pipeline, or this simulation not that of the
// model.
void check_pipeline(const ModelConfig& model);
// Qwen3-VL adds features of an image to the outputs of its first layers, which the first stage must have
// (models/qwen3_vl.py). Throws UserError.
void check_deepstack(const ModelConfig& model, const std::vector<LayerRange>& stages);

// What a stage has of the model: its layers only.
ModelConfig stage_model(const ModelConfig& model, LayerRange layers);

// A rank's share of `stage_model` on stage `pp_rank` of `pp_size`: the embedding is on the first, norm and
// head are on the last. Some of SGLang's models keep a head, which nothing is multiplied with, on every
// stage.
Shard stage_shard(const ModelConfig& stage_model, const ParallelLayout& layout, std::uint32_t tp_rank,
                  std::uint32_t pp_rank, std::uint32_t pp_size);

}  // namespace tpsim::rank
