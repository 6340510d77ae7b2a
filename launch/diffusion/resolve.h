// What a user asks of a pipeline, with all that SGLang chooses: ready to be priced.
#pragma once

#include <string>
#include <vector>

#include "launch/diffusion/attention_choice.h"
#include "launch/diffusion/parallelism.h"
#include "launch/diffusion/pipeline_args.h"
#include "launch/diffusion/residency.h"
#include "proto/hardware.pb.h"
#include "rank/diffusion/pipeline.h"

namespace tpsim::launch {

struct Pipeline {
  rank::PipelineConfig config;
  proto::HardwareProfile hardware;
};
// Throws UserError naming --model-path or --hardware.
Pipeline load_pipeline_of(const PipelineArgs& args);

struct ResolvedPipeline {
  Parallelism parallel;
  rank::PipelinePlan plan;
  rank::GenerationRequest request;  // of one prompt
  std::vector<AttentionRow> attention;
  std::vector<std::string> notes;  // what was chosen unasked, a sentence each
};
// Throws UserError naming the flag where SGLang refuses.
ResolvedPipeline resolve(const PipelineArgs& args, const Pipeline& pipeline);

// One request by the flags and the model's defaults, for a deployment of `num_gpus`; adds to `notes`.
rank::GenerationRequest resolve_request(const SamplingAsked& asked, const rank::PipelineConfig& config,
                                        std::uint32_t num_gpus, std::vector<std::string>& notes);

struct Generation {
  rank::GenerationCost cost;
  bool fits = true;
  std::string too_large;  // a sentence where it does not fit: what needs how much, and what would help
};
Generation price(const Pipeline& pipeline, const ResolvedPipeline& resolved,
                 const rank::GenerationRequest& request);

}  // namespace tpsim::launch
