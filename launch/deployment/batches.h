// Batches of a deployment: how much prefill goes into one, and the order of the queue.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/parallel_layout.h"
#include "scheduler/config.h"

namespace tpsim::launch {

struct Batches {
  // Tokens of one chunk of prefill, of all data-parallel ranks and of one; 0: no chunks.
  std::uint32_t whole_chunk = 0, chunk = 0;
  double schedule_conservativeness = 1;
  scheduler::DataParallelConfig data_parallel;
  Switches switches;
  Notes notes;
};
// With SGLang's defaults for the GPU. Throws UserError.
Batches resolve_batches(const ServerArgs& args, const proto::HardwareProfile& hardware,
                        const rank::ModelConfig& model, const rank::ParallelLayout& layout,
                        std::uint32_t page_size, Switches switches);

// `config` with what is said of batches, of the queue and of the cache.
scheduler::SchedulerConfig with_batches(scheduler::SchedulerConfig config, const ServerArgs& args,
                                        const Batches& batches);

// `config`: of the whole deployment.
void write_batches(const scheduler::SchedulerConfig& config, Rows& rows);

}  // namespace tpsim::launch
