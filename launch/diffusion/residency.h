// Where SGLang keeps the weights of a pipeline's components: ServerArgsAutoTuner
// (runtime/server_args/auto_tune.py) and ServerArgs.residency_mode() of sglang.multimodal_gen 0.5.23.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/diffusion/deployment_rule.h"
#include "launch/diffusion/pipeline_args.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

inline constexpr double kGib = 1024.0 * 1024 * 1024;

struct ResidencyChoice {
  std::map<std::string, rank::Residency, std::less<>> components;
  std::vector<std::string> notes;  // what was chosen unasked, a sentence each
};

struct ResidencyRequest {
  const rank::PipelineConfig* config = nullptr;
  const DeploymentRule* rule = nullptr;
  std::string performance_mode;  // auto, speed, memory, manual
  double memory_bytes = 0;       // of one GPU
  bool cuda = true;              // NVIDIA's
  std::uint32_t tp = 1;
  std::uint32_t batching_max_size = 1;
  bool cache_dit = false;  // SGLANG_CACHE_DIT_ENABLED
  bool quantised = false;  // --quantization
  bool distilled = false;  // the pipeline has fixed denoising steps (DMD)
};

// Throws UserError naming the flag where SGLang refuses, and where a component is named that the pipeline
// lacks.
ResidencyChoice resolve_residency(const ResidencyAsked& asked, const ResidencyRequest& request);

}  // namespace tpsim::launch
