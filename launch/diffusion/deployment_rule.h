// How SGLang deploys a pipeline where nothing is said: ModelDeploymentConfig of 0.5.23
// (configs/pipeline_configs/model_deployment_config.py and get_model_deployment_config() of each pipeline).
#pragma once

#include <cstdint>
#include <string_view>

#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

struct DeploymentRule {
  std::string_view pipeline;  // _class_name of model_index.json
  // The row is for those of the class that have a transformer_2 (auto_dit_offload_prefetch_size is 2).
  bool two_transformers = false;
  bool layerwise_in_auto = false;    // the transformer streams layer by layer unless all fits
  bool layerwise_in_memory = false;  // ... with --performance-mode memory, or where it overflows the GPU
  double resident_gib = 0;  // free memory from which components stay; 0: 45 for images, 120 for videos
  bool keep_dit = false, keep_vae = true;  // which do, from there on
  // GPUs at which classifier-free guidance is not shared out unasked.
  std::uint32_t no_auto_cfg[2] = {0, 0};
  bool shards_sequence = false;  // any number of frames is cut; else frames are aligned with the GPUs
  bool shaped_by_image = false;  // an input image's shape is the output's, with the area that is asked for
  bool negative_prompt = true;   // requests have one by default, without which they are not guided
  double guided_above = 1;       // of the scale
};

// The row of the pipeline; SGLang's defaults where it has none of its own.
const DeploymentRule& deployment_rule(const rank::PipelineConfig& config);

}  // namespace tpsim::launch
