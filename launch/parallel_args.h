// How the model is shared among the GPUs: the flags beside --tp, and what SGLang makes of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "rank/model/expert_load.h"
#include "rank/model/model_config.h"
#include "rank/model/parallel_layout.h"
#include "rank/model/pipeline.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct Deployment;
struct ServerArgs;

// The layout of the deployment, with what SGLang changes on its own as notes. Throws UserError for what the
// model, or this simulation, cannot do.
rank::ParallelLayout resolve_layout(const ServerArgs& args, const rank::ModelConfig& model,
                                    std::vector<std::string>& notes);
// The layers of each pipeline stage, and how micro-batches take turns. What SGLang turns off for it is in
// `notes`. Throws UserError for what is not simulated.
std::vector<rank::LayerRange> resolve_pipeline(const ServerArgs& args, const rank::ModelConfig& model,
                                               scheduler::SchedulerConfig& config,
                                               std::vector<std::string>& notes);
// What the stages of the run that `report` tells of have and leave room for; of one stage nothing.
void describe_stages(const Deployment& deployment, proto::RunReport& report);
// --expert-distribution.
rank::ExpertLoad resolve_expert_load(const ServerArgs& args, const rank::ModelConfig& model);
// What data-parallel attention changes in the options of one data-parallel rank, after all others are
// resolved (SGLang 0.5 _handle_data_parallelism): a share of the chunk, a lower conservativeness.
void apply_data_parallelism(const ServerArgs& args, const rank::ParallelLayout& layout,
                            scheduler::SchedulerConfig& config);
// Only sizes that a data-parallel rank's GPUs can divide are captured where they split its tokens
// (get_batch_sizes_to_capture).
void align_captured_sizes(const rank::ParallelLayout& layout, scheduler::SchedulerConfig& config);
// Those that were given, under SGLang's field names.
void write_parallel_args(const ServerArgs& args, const rank::ParallelLayout& layout,
                         const rank::ExpertLoad& load, const rank::ModelConfig& model,
                         proto::RunReport& header);

}  // namespace tpsim::launch
