// Requests of a load on a pipeline: drawn, or read from a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/flag_set.h"
#include "launch/diffusion/request_queue.h"
#include "launch/diffusion/resolve.h"

namespace tpsim::launch {

struct PipelineLoad {
  std::string trace;
  std::optional<double> request_rate;        // per second; nullopt: all at once
  std::optional<std::uint32_t> num_prompts;  // default 10, or the trace's
  std::uint32_t max_concurrency = 0;         // 0: any number
  std::uint32_t seed = 1;
  std::optional<double> goodput_ms;
};

void declare_pipeline_load(FlagSet& flags, PipelineLoad& load);

// In the order of arrival. A trace is JSON lines: {"timestamp": seconds, "width", "height", "num_frames",
// "num_inference_steps", "num_outputs_per_prompt"}, each but the first as the flags have it where it is left
// out. Throws UserError "FILE:LINE: …". Adds what was chosen unasked to `notes`, once.
std::vector<QueuedRequest> make_load(const PipelineLoad& load, const SamplingAsked& sampling,
                                     const rank::PipelineConfig& config, std::uint32_t num_gpus,
                                     std::vector<std::string>& notes);

}  // namespace tpsim::launch
