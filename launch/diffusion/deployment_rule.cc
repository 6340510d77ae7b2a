#include "launch/diffusion/deployment_rule.h"

#include <algorithm>
#include <string>

namespace tpsim::launch {
namespace {

// configs/pipeline_configs/{wan,hunyuan,zimage,ltx_2}.py; sequence shards of
// configs/sample/sampling_params.py
// (_SEQUENCE_SHARD_PIPELINE_FAMILIES), negative prompts of configs/sample/*.py. Of one class the row with two
// transformers first.
constexpr DeploymentRule kRules[] = {{.pipeline = "WanPipeline",
                                      .two_transformers = true,
                                      .layerwise_in_auto = true,
                                      .layerwise_in_memory = true,
                                      .resident_gib = 120,
                                      .keep_dit = true,
                                      .keep_vae = true,
                                      .shards_sequence = true},
                                     {.pipeline = "WanPipeline",
                                      .layerwise_in_memory = true,
                                      .resident_gib = 60,
                                      .keep_dit = true,
                                      .keep_vae = false,
                                      .shards_sequence = true},
                                     {.pipeline = "WanImageToVideoPipeline",
                                      .two_transformers = true,
                                      .layerwise_in_auto = true,
                                      .layerwise_in_memory = true,
                                      .resident_gib = 120,
                                      .keep_dit = true,
                                      .keep_vae = true,
                                      .shards_sequence = true,
                                      .shaped_by_image = true},
                                     {.pipeline = "WanImageToVideoPipeline",
                                      .layerwise_in_memory = true,
                                      .resident_gib = 60,
                                      .keep_dit = true,
                                      .keep_vae = false,
                                      .shards_sequence = true,
                                      .shaped_by_image = true},
                                     {.pipeline = "ZImagePipeline", .resident_gib = 30, .guided_above = 0},
                                     {.pipeline = "LTX2Pipeline",
                                      .resident_gib = 70,
                                      .keep_dit = true,
                                      .keep_vae = false,
                                      .no_auto_cfg = {4, 8}},
                                     {.pipeline = "LTX2ImageToVideoPipeline",
                                      .resident_gib = 70,
                                      .keep_dit = true,
                                      .keep_vae = false,
                                      .no_auto_cfg = {4, 8}},
                                     {.pipeline = "FluxPipeline", .negative_prompt = false},
                                     {.pipeline = "Flux2Pipeline", .negative_prompt = false},
                                     {.pipeline = "Flux2KleinPipeline", .negative_prompt = false}};
constexpr DeploymentRule kDefault{};

}  // namespace

const DeploymentRule& deployment_rule(const rank::PipelineConfig& config) {
  const bool two = std::ranges::count(config.components, rank::ComponentKind::kTransformer,
                                      &rank::PipelineComponent::kind) > 1;
  const auto* const row = std::ranges::find_if(kRules, [&](const DeploymentRule& rule) {
    return rule.pipeline == config.class_name && (two || !rule.two_transformers);
  });
  return row == std::end(kRules) ? kDefault : *row;
}

}  // namespace tpsim::launch
