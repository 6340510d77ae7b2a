// Batches of a deployment: how much prefill goes into one, the order of the queue, and what is captured in
// graphs: decode by batch sizes, prefill in pieces by tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/deployment/attention.h"
#include "launch/deployment/subject.h"
#include "launch/flags/server_args.h"
#include "proto/hardware.pb.h"
#include "rank/config/model_config.h"
#include "rank/config/shard.h"
#include "rank/llm/graph_capture.h"
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

struct Graphs {
  std::vector<std::uint32_t> decode;  // batch sizes, ascending, whatever number of requests may run
  rank::PrefillGraphs prefill;
  // What memory is kept free for, whether or not the backend can be captured.
  std::uint32_t reserved_decode_bs = 0, reserved_prefills = 0;
  Notes notes;
};
// `eager_prefill`: in pipeline stages, or in two halves.
Graphs resolve_graphs(const ServerArgs& args, const proto::HardwareProfile& hardware,
                      const rank::ModelConfig& model, const AttentionChoice& attention,
                      const rank::ParallelLayout& layout, const Batches& batches, bool eager_prefill);

// Of `sizes` those that SGLang captures: what the request table has room for, and the table's size itself
// where the list goes beyond it; only sizes that a data-parallel rank's GPUs can divide where they split its
// tokens (get_batch_sizes_to_capture). Throws UserError where none is left.
std::vector<std::uint32_t> captured_sizes(std::vector<std::uint32_t> sizes, std::uint32_t max_running,
                                          const rank::ParallelLayout& layout);

// `decode`: the captured sizes.
void write_graphs(const std::vector<std::uint32_t>& decode, const rank::PrefillGraphs& prefill, Rows& rows);

}  // namespace tpsim::launch
