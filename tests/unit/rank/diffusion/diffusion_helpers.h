// What tests of diffusion pipelines share.
#pragma once

#include <string>

#include "attention/diffusion/selection/diffusion_attention.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::rank {

// All layers of all transformers by one backend, cross-attention too unless it is sparse.
inline PipelinePlan plan_of(const PipelineConfig& config, const std::string& backend) {
  PipelinePlan plan;
  const attention::DiffusionBackend& self = attention::find_diffusion_backend("--attention-backend", backend);
  const attention::DiffusionBackend& cross =
      self.sparse ? attention::find_diffusion_backend("--attention-backend", "fa") : self;
  for (const PipelineComponent& c : config.components) {
    if (c.kind == ComponentKind::kTransformer)
      plan.attention[c.name] = {&self, &cross, attention::read_diffusion_parameters(self, "")};
  }
  return plan;
}

inline GenerationRequest request_of(std::uint32_t width, std::uint32_t height, std::uint32_t frames = 1,
                                    std::uint32_t steps = 50, bool guided = false) {
  GenerationRequest request;
  request.width = width;
  request.height = height;
  request.frames = frames;
  request.steps = steps;
  request.guided = guided;
  return request;
}

}  // namespace tpsim::rank
