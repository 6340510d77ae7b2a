// How the model is shared among the GPUs: the flags beside --tp, and what SGLang makes of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/expert_load.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct Parallel {
  rank::ParallelLayout layout;
  rank::ExpertLoad expert_load;       // --expert-distribution
  std::optional<double> two_batches;  // --enable-two-batch-overlap: the share from which a request is cut
  bool mega_moe = false;  // one kernel brings tokens to their experts, multiplies and brings them back
  Notes notes;            // what SGLang changes on its own
};
// Throws UserError for what the model, or this simulation, cannot do.
Parallel resolve_parallel(const ServerArgs& args, const rank::ModelConfig& model);

// The layers of each pipeline stage, and how micro-batches take turns.
struct Pipeline {
  std::vector<rank::LayerRange> stages;
  scheduler::PipelineConfig config;
  Switches switches;
  Notes notes;

  // What a rank of stage `pp_rank` has of the model, and its share of it.
  rank::ModelConfig model_of_stage(const rank::ModelConfig& model, std::uint32_t pp_rank) const;
  rank::Shard shard_of(const rank::ModelConfig& stage_model, const rank::ParallelLayout& layout,
                       std::uint32_t tp_rank, std::uint32_t pp_rank) const;
};
// Throws UserError for what is not simulated.
Pipeline resolve_pipeline(const ServerArgs& args, const rank::ModelConfig& model,
                          const rank::ParallelLayout& layout, bool speculates, Switches switches);

// Those that were given.
void write_parallel(const ParallelArgs& args, const Parallel& parallel, const Pipeline& pipeline,
                    const rank::ModelConfig& model, std::uint32_t max_running_requests, Rows& rows);

}  // namespace tpsim::launch
