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
#include "scheduler/config.h"

namespace tpsim::launch {

struct ServerArgs;

// The layout of the deployment, with what SGLang changes on its own as notes. Throws UserError for what the
// model, or this simulation, cannot do.
rank::ParallelLayout resolve_layout(const ServerArgs& args, const rank::ModelConfig& model,
                                    std::vector<std::string>& notes);
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
